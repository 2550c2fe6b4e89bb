// Methods of lists, tuples and dicts. Lists and dicts may be changed: Hugging Face's sandbox
// forbids it, so that no published template depends on either.
#include <algorithm>
#include <map>

#include "text/jinja_interpreter.h"
#include "text/jinja_parameters.h"
#include "text/jinja_string_methods.h"

namespace quire::text::jinja {
namespace {

using Methods = std::map<std::string_view, Builtin>;

// --- lists and tuples

Value Append(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("append", arguments, {"object"});
  self.list().Append(parameters.Required(0));
  interpreter.NoteMutation(self, parameters.Required(0));
  return Value::None();
}

Value Extend(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("extend", arguments, {"iterable"});
  for (Value& item : ToVector(interpreter.budget(), parameters.Required(0))) {
    interpreter.NoteMutation(self, item);
    self.list().Append(std::move(item));
  }
  return Value::None();
}

Value Insert(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("insert", arguments, {"index", "object"});
  std::vector<Value>& items = self.list().items;
  const auto size = static_cast<int64_t>(items.size());
  int64_t index = parameters.Int(0);
  if (index < 0) index = std::max<int64_t>(index + size, 0);
  index = std::min(index, size);
  interpreter.budget().StepBytes(size * static_cast<int64_t>(sizeof(Value)));
  interpreter.NoteMutation(self, parameters.Required(1));
  self.list().Append(parameters.Required(1));
  std::rotate(items.begin() + index, items.end() - 1, items.end());
  return Value::None();
}

Value PopItem(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("pop", arguments, {"index"});
  std::vector<Value>& items = self.list().items;
  const auto size = static_cast<int64_t>(items.size());
  int64_t index = parameters.IntOr(0, -1);
  if (index < 0) index += size;
  if (index < 0 || index >= size) Fail("pop index out of range");
  interpreter.budget().StepBytes((size - index) * static_cast<int64_t>(sizeof(Value)));
  Value item = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + index);
  return item;
}

// The place of `item` in `self`, nullopt where it is not.
std::optional<size_t> PlaceOf(Interpreter& interpreter, const Value& self, const Value& item) {
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (Equals(interpreter.budget(), self.items()[i], item)) return i;
  }
  return std::nullopt;
}

Value Remove(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("remove", arguments, {"value"});
  const std::optional<size_t> place = PlaceOf(interpreter, self, parameters.Required(0));
  if (!place) Fail("list.remove(x): x not in list");
  std::vector<Value>& items = self.list().items;
  items.erase(items.begin() + static_cast<ptrdiff_t>(*place));
  return Value::None();
}

Value Index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("index", arguments, {"value"});
  const std::optional<size_t> place = PlaceOf(interpreter, self, parameters.Required(0));
  if (!place) Fail("the value is not in the {}", self.TypeName());
  return Value::Int(static_cast<int64_t>(*place));
}

Value CountItem(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("count", arguments, {"value"});
  int64_t count = 0;
  for (const Value& item : self.items()) {
    count += Equals(interpreter.budget(), item, parameters.Required(0)) ? 1 : 0;
  }
  return Value::Int(count);
}

Value Reverse(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("reverse", arguments, {});
  std::vector<Value>& items = self.list().items;
  interpreter.budget().StepBytes(static_cast<int64_t>(items.size() * sizeof(Value)));
  std::reverse(items.begin(), items.end());
  return Value::None();
}

Value SortInPlace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse"});
  std::vector<Value> items = self.items();
  const bool descending = parameters.IsTrue(0);
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return descending ? Compare(interpreter.budget(), b, a, "<") < 0
                      : Compare(interpreter.budget(), a, b, "<") < 0;
  });
  self.list().items = std::move(items);
  return Value::None();
}

Value CopyList(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("copy", arguments, {});
  interpreter.budget().StepBytes(static_cast<int64_t>(self.items().size() * sizeof(Value)));
  return interpreter.MakeList(self.items());
}

Value ClearList(Interpreter&, const Value& self, const Arguments& arguments) {
  Parameters("clear", arguments, {});
  self.list().Clear();
  return Value::None();
}

// --- dicts

Value Get(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("get", arguments, {"key", "default"});
  const Value* found = self.dict().Find(parameters.Required(0));
  return found != nullptr ? *found : parameters.Or(1, Value::None());
}

enum class Part { kKeys, kValues, kItems };

template <Part kPart>
Value ViewOf(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("items", arguments, {});
  const auto& entries = self.dict().entries();
  interpreter.budget().StepBytes(static_cast<int64_t>(entries.size() * 4 * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    items.push_back(kPart == Part::kKeys     ? key
                    : kPart == Part::kValues ? value
                                             : interpreter.MakeTuple({key, value}));
  }
  constexpr std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
  return Value::View(&interpreter.budget(), kNames[static_cast<int>(kPart)], std::move(items));
}

Value Update(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Value source =
      interpreter.Call(*FindFunction("dict"), arguments);  // takes what dict() takes
  for (const auto& [key, value] : source.dict().entries()) {
    self.dict().Set(key, value);
    interpreter.NoteMutation(self, value);
  }
  return Value::None();
}

Value PopKey(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("pop", arguments, {"key", "default"});
  const Value* found = self.dict().Find(parameters.Required(0));
  if (found == nullptr) {
    if (!parameters.Has(1)) Fail("pop() does not find its key");
    return parameters.Required(1);
  }
  Value value = *found;
  interpreter.budget().StepBytes(static_cast<int64_t>(self.dict().entries().size() * 64));
  self.dict().Erase(parameters.Required(0));
  return value;
}

Value PopLast(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("popitem", arguments, {});
  if (self.dict().entries().empty()) Fail("popitem(): the dictionary is empty");
  const auto [key, value] = self.dict().entries().back();
  interpreter.budget().StepBytes(static_cast<int64_t>(self.dict().entries().size() * 64));
  self.dict().Erase(key);
  return interpreter.MakeTuple({key, value});
}

Value SetDefault(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("setdefault", arguments, {"key", "default"});
  const Value& key = parameters.Required(0);
  if (const Value* found = self.dict().Find(key)) return *found;
  Value value = parameters.Or(1, Value::None());
  self.dict().Set(key, value);
  interpreter.NoteMutation(self, value);
  return value;
}

Value CopyDict(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("copy", arguments, {});
  return interpreter.Call(*FindFunction("dict"), Arguments{{self}, {}});
}

Value ClearDict(Interpreter&, const Value& self, const Arguments& arguments) {
  Parameters("clear", arguments, {});
  self.dict().Clear();
  return Value::None();
}

const Methods& ListMethods() {
  static const Methods methods = {
      {"append", Append}, {"extend", Extend},    {"insert", Insert},   {"pop", PopItem},
      {"remove", Remove}, {"index", Index},      {"count", CountItem}, {"reverse", Reverse},
      {"copy", CopyList}, {"sort", SortInPlace}, {"clear", ClearList},
  };
  return methods;
}

const Methods& TupleMethods() {
  static const Methods methods = {{"index", Index}, {"count", CountItem}};
  return methods;
}

const Methods& DictMethods() {
  static const Methods methods = {
      {"get", Get},
      {"keys", ViewOf<Part::kKeys>},
      {"values", ViewOf<Part::kValues>},
      {"items", ViewOf<Part::kItems>},
      {"update", Update},
      {"pop", PopKey},
      {"popitem", PopLast},
      {"setdefault", SetDefault},
      {"copy", CopyDict},
      {"clear", ClearDict},
  };
  return methods;
}

}  // namespace

Builtin FindMethod(const Value& self, std::string_view name) {
  if (self.is(Kind::kString)) return FindStringMethod(name);
  const Methods* methods = self.is(Kind::kDict)    ? &DictMethods()
                           : self.is(Kind::kList)  ? &ListMethods()
                           : self.is(Kind::kTuple) ? &TupleMethods()
                                                   : nullptr;
  if (methods == nullptr) return nullptr;
  const auto found = methods->find(name);
  return found == methods->end() ? nullptr : found->second;
}

}  // namespace quire::text::jinja
