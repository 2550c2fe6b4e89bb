#include <algorithm>
#include <set>

#include "text/jinja_filters.h"
#include "text/jinja_parameters.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr int64_t kMaxFilledBatch = 100'000;

enum class Letters { kAsTheyAre, kFolded };  // what comparing sees

Letters LettersOf(const Parameters& parameters, size_t case_sensitive) {
  return parameters.IsTrue(case_sensitive) ? Letters::kAsTheyAre : Letters::kFolded;
}

Value Fold(Interpreter& interpreter, const Value& value, Letters letters) {
  if (letters == Letters::kAsTheyAre || !value.is(Kind::kString)) return value;
  interpreter.budget().StepBytes(8 * static_cast<int64_t>(value.text().size()));
  return interpreter.MakeString(ToCase(value.text(), LetterCase::kLower));
}

// "a.b.0" or 3: the path of an item that map, sort, ... look at.
class Path {
 public:
  // `attribute` may be None: the item itself.
  Path(Interpreter& interpreter, const Value& attribute) : interpreter_(interpreter) {
    if (attribute.is(Kind::kNone)) return;
    if (!attribute.is(Kind::kString)) {
      keys_.push_back(attribute);
      return;
    }
    std::string_view rest = attribute.text();
    for (;;) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      keys_.push_back(KeyOf(rest.substr(0, dot)));
      if (dot == rest.size()) break;
      rest.remove_prefix(dot + 1);
    }
  }

  // `fallback` stands in for what is undefined on the way.
  Value Of(Value item, const std::optional<Value>& fallback = std::nullopt) const {
    for (const Value& key : keys_) {
      item = interpreter_.Item(item, key);
      if (item.is(Kind::kUndefined) && fallback) item = *fallback;
    }
    return item;
  }

 private:
  Value KeyOf(std::string_view part) {
    const bool is_index = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_index) return Value::Int(ParseInt(part, 10).value_or(ParsedInt{}).value);
    return interpreter_.MakeString(std::string(part));
  }

  Interpreter& interpreter_;
  std::vector<Value> keys_;
};

Value LengthOf(Interpreter&, const Value& self, const Arguments& arguments) {
  Parameters("length", arguments, {});
  const std::optional<int64_t> length = Length(self);
  if (!length) Fail("object of type '{}' has no len()", self.TypeName());
  return Value::Int(*length);
}

Value First(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("first", arguments, {});
  Cursor cursor(interpreter.budget(), self);
  const std::optional<Value> item = cursor.Next();
  return item ? *item : interpreter.MakeUndefined("there is no first item, the sequence is empty");
}

Value Last(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("last", arguments, {});
  if (self.is(Kind::kUndefined)) return interpreter.MakeUndefined("there is no last item");
  if (self.is(Kind::kIterator)) Fail("'generator' object is not reversible");
  const std::vector<Value> items = ToVector(interpreter.budget(), self);
  return items.empty() ? interpreter.MakeUndefined("there is no last item, the sequence is empty")
                       : items.back();
}

Value Join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("join", arguments, {"d", "attribute"});
  const std::string separator =
      parameters.Has(0) ? ToStr(interpreter.budget(), parameters.Required(0)) : "";
  const Path path(interpreter, parameters.Or(1, Value::None()));
  Writer out(interpreter.budget());
  Cursor cursor(interpreter.budget(), self);
  bool first = true;
  while (std::optional<Value> item = cursor.Next()) {
    if (!std::exchange(first, false)) out.Append(separator);
    AppendStr(out, path.Of(std::move(*item)));
  }
  return out.ToValue();
}

Value ToList(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("list", arguments, {});
  return interpreter.MakeList(ToVector(interpreter.budget(), self));
}

Value Items(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("items", arguments, {});
  std::vector<Value> items;
  if (!self.is(Kind::kUndefined)) {
    if (!self.is(Kind::kDict)) Fail("items needs a mapping, not {}", self.TypeName());
    for (const auto& [key, value] : self.dict().entries()) {
      interpreter.budget().Step();
      items.push_back(interpreter.MakeTuple({key, value}));
    }
  }
  return Value::Iterator(&interpreter.budget(), std::move(items));
}

Value Reverse(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("reverse", arguments, {});
  if (self.is(Kind::kString)) {
    return Slice(interpreter, self, {Value::None(), Value::None(), Value::Int(-1)});
  }
  std::vector<Value> items = ToVector(interpreter.budget(), self);
  std::reverse(items.begin(), items.end());
  return Value::Iterator(&interpreter.budget(), std::move(items));
}

// The items with what they are sorted by, in order; equal ones stay as they were.
std::vector<std::pair<Value, Value>> SortBy(Interpreter& interpreter,
                                            std::vector<std::pair<Value, Value>> keyed,
                                            bool descending) {
  Budget& budget = interpreter.budget();
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return Compare(budget, descending ? b.first : a.first, descending ? a.first : b.first, "<") < 0;
  });
  return keyed;
}

std::vector<Value> SecondsOf(std::vector<std::pair<Value, Value>> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

Value Sort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Letters letters = LettersOf(parameters, 1);
  std::vector<Path> paths;  // "a,b" sorts by a, then by b
  if (parameters.IsSet(2) && parameters.Required(2).is(Kind::kString)) {
    std::string_view rest = parameters.Text(2);
    for (;;) {
      const size_t comma = std::min(rest.find(','), rest.size());
      paths.emplace_back(interpreter, interpreter.MakeString(std::string(rest.substr(0, comma))));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(interpreter, parameters.Or(2, Value::None()));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : ToVector(interpreter.budget(), self)) {
    std::vector<Value> key;
    for (const Path& path : paths) key.push_back(Fold(interpreter, path.Of(item), letters));
    keyed.emplace_back(interpreter.MakeList(std::move(key)), item);
  }
  keyed = SortBy(interpreter, std::move(keyed), parameters.IsTrue(0));
  return interpreter.MakeList(SecondsOf(std::move(keyed)));
}

Value DictSort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = parameters.Has(1) ? parameters.Text(1) : "key";
  if (by != "key" && by != "value") Fail("dictsort sorts by 'key' or 'value', not by '{}'", by);
  if (!self.is(Kind::kDict)) Fail("dictsort needs a mapping, not {}", self.TypeName());
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : self.dict().entries()) {
    keyed.emplace_back(Fold(interpreter, by == "key" ? key : value, LettersOf(parameters, 0)),
                       interpreter.MakeTuple({key, value}));
  }
  keyed = SortBy(interpreter, std::move(keyed), parameters.IsTrue(2));
  return interpreter.MakeList(SecondsOf(std::move(keyed)));
}

Value Unique(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
  const Path path(interpreter, parameters.Or(1, Value::None()));
  std::set<Value, KeyLess> seen;
  std::vector<Value> items;
  for (const Value& item : ToVector(interpreter.budget(), self)) {
    const Value key = Fold(interpreter, path.Of(item), LettersOf(parameters, 0));
    if (!IsHashable(key)) Fail("unhashable type: '{}'", key.TypeName());
    if (seen.insert(key).second) items.push_back(item);
  }
  return Value::Iterator(&interpreter.budget(), std::move(items));
}

enum class Extreme { kLeast, kGreatest };

template <Extreme kExtreme>
Value ExtremeOf(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("min and max", arguments, {"case_sensitive", "attribute"});
  const Path path(interpreter, parameters.Or(1, Value::None()));
  std::optional<Value> best;
  Value best_key;
  for (const Value& item : ToVector(interpreter.budget(), self)) {
    Value key = Fold(interpreter, path.Of(item), LettersOf(parameters, 0));
    const bool better = !best || (kExtreme == Extreme::kLeast
                                      ? Compare(interpreter.budget(), key, best_key, "<") < 0
                                      : Compare(interpreter.budget(), key, best_key, ">") > 0);
    if (!better) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : interpreter.MakeUndefined("the sequence is empty");
}

Value Sum(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("sum", arguments, {"attribute", "start"});
  const Path path(interpreter, parameters.Or(0, Value::None()));
  Value total = parameters.Or(1, Value::Int(0));
  if (total.is(Kind::kString)) Fail("sum() can't sum strings");
  Cursor cursor(interpreter.budget(), self);
  while (std::optional<Value> item = cursor.Next()) {
    total = Arithmetic(interpreter, Operator::kAdd, total, path.Of(std::move(*item)));
  }
  return total;
}

Arguments WithoutFirst(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

std::string NameAt(const Arguments& arguments, size_t i, std::string_view what) {
  if (i >= arguments.positional.size() || !arguments.positional[i].is(Kind::kString)) {
    Fail("{} must be a string", what);
  }
  return arguments.positional[i].text();
}

Value Map(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  std::vector<Value> items;
  if (!IsTruthy(self)) return Value::Iterator(&interpreter.budget(), std::move(items));
  Nesting nesting(interpreter.budget());
  if (arguments.positional.empty()) {
    const Parameters parameters("map", arguments, {"attribute", "default"});
    const Path path(interpreter, parameters.Required(0));
    std::optional<Value> fallback;
    if (parameters.IsSet(1)) fallback = parameters.Required(1);
    for (Value& item : ToVector(interpreter.budget(), self)) {
      items.push_back(path.Of(std::move(item), fallback));
    }
  } else {
    const std::string filter = NameAt(arguments, 0, "the filter that map applies");
    const Arguments rest = WithoutFirst(arguments, 1);
    for (const Value& item : ToVector(interpreter.budget(), self)) {
      items.push_back(interpreter.ApplyFilter(filter, item, rest));
    }
  }
  return Value::Iterator(&interpreter.budget(), std::move(items));
}

enum class Keep { kMatching, kOthers };
enum class Look { kAtItem, kAtAttribute };

template <Keep kKeep, Look kLook>
Value Select(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  std::vector<Value> items;
  if (!IsTruthy(self)) return Value::Iterator(&interpreter.budget(), std::move(items));
  Nesting nesting(interpreter.budget());
  constexpr size_t kTest = kLook == Look::kAtAttribute ? 1 : 0;
  if (kLook == Look::kAtAttribute && arguments.positional.empty()) {
    Fail("selectattr and rejectattr need the name of an attribute");
  }
  const Path path(interpreter, kTest == 1 ? arguments.positional[0] : Value::None());
  const bool has_test = arguments.positional.size() > kTest;
  const std::string test = has_test ? NameAt(arguments, kTest, "the test to select by") : "";
  const Arguments rest = has_test ? WithoutFirst(arguments, kTest + 1) : Arguments{};
  for (const Value& item : ToVector(interpreter.budget(), self)) {
    const Value looked_at = path.Of(item);
    const bool matches =
        has_test ? interpreter.ApplyTest(test, looked_at, rest) : IsTruthy(looked_at);
    if (matches == (kKeep == Keep::kMatching)) items.push_back(item);
  }
  return Value::Iterator(&interpreter.budget(), std::move(items));
}

Value Batch(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("batch", arguments, {"linecount", "fill_with"});
  const int64_t size = parameters.Int(0);
  std::vector<Value> batches;
  std::vector<Value> current;
  for (Value& item : ToVector(interpreter.budget(), self)) {
    if (static_cast<int64_t>(current.size()) == size) {
      batches.push_back(interpreter.MakeList(std::exchange(current, {})));
    }
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    if (parameters.IsSet(1) && static_cast<int64_t>(current.size()) < size) {
      if (size > kMaxFilledBatch) Fail("a filled batch has at most {} items", kMaxFilledBatch);
      current.resize(static_cast<size_t>(size), parameters.Required(1));
    }
    batches.push_back(interpreter.MakeList(std::move(current)));
  }
  return Value::Iterator(&interpreter.budget(), std::move(batches));
}

// Pairs of a value and the items that have it, sorted by it.
Value GroupBy(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const Path path(interpreter, parameters.Required(0));
  std::optional<Value> fallback;
  if (parameters.IsSet(1)) fallback = parameters.Required(1);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : ToVector(interpreter.budget(), self)) {
    keyed.emplace_back(Fold(interpreter, path.Of(item, fallback), LettersOf(parameters, 2)), item);
  }
  keyed = SortBy(interpreter, std::move(keyed), false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    const size_t start = i;
    std::vector<Value> members;
    for (; i < keyed.size() && Equals(interpreter.budget(), keyed[i].first, keyed[start].first);
         ++i) {
      members.push_back(keyed[i].second);
    }
    if (i == start) ++i;  // NaN equals nothing, not even itself
    Value name = path.Of(keyed[start].second, fallback);
    groups.push_back(
        interpreter.MakeTuple({std::move(name), interpreter.MakeList(std::move(members))}));
  }
  return interpreter.MakeList(std::move(groups));
}

}  // namespace

void AddSequenceFilters(FilterTable& table) {
  table.insert({
      {"length", LengthOf},
      {"count", LengthOf},
      {"first", First},
      {"last", Last},
      {"join", Join},
      {"list", ToList},
      {"items", Items},
      {"reverse", Reverse},
      {"sort", Sort},
      {"dictsort", DictSort},
      {"unique", Unique},
      {"min", ExtremeOf<Extreme::kLeast>},
      {"max", ExtremeOf<Extreme::kGreatest>},
      {"sum", Sum},
      {"map", Map},
      {"select", Select<Keep::kMatching, Look::kAtItem>},
      {"reject", Select<Keep::kOthers, Look::kAtItem>},
      {"selectattr", Select<Keep::kMatching, Look::kAtAttribute>},
      {"rejectattr", Select<Keep::kOthers, Look::kAtAttribute>},
      {"batch", Batch},
      {"groupby", GroupBy},
  });
}

}  // namespace quire::text::jinja
