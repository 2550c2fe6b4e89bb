#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "text/jinja_search.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr int64_t kObjectBytes = 64;  // an object with its control block, roughly
constexpr int64_t kValueBytes = sizeof(Value);

struct StringObject : Object {
  StringObject(Budget* budget, std::string content) : Object(budget), text(std::move(content)) {
    Charge(kObjectBytes + static_cast<int64_t>(text.size()));
    code_points = CountCodePoints(text);
  }
  std::string text;
  int64_t code_points;
};

int KeyRank(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return 0;
    case Kind::kString:
      return 1;
    case Kind::kNone:
      return 2;
    case Kind::kTuple:
      return 3;
    case Kind::kUndefined:
      return 4;
    default:
      return 5;
  }
}

// -1, 0, 1 exactly, also where a double cannot hold the integer. NaN sorts last.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  }
  auto wide = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.integer())
                           : static_cast<long double>(v.number());
  };
  const long double x = wide(a);
  const long double y = wide(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) - std::isnan(y);
  return x < y ? -1 : x > y;
}

bool IsHashableWithin(const Value& value, int depth_left, int& values_left) {
  if (--values_left < 0 || depth_left == 0) Fail("a tuple this large cannot be a key");
  if (value.is(Kind::kTuple)) {
    return std::all_of(value.items().begin(), value.items().end(), [&](const Value& item) {
      return IsHashableWithin(item, depth_left - 1, values_left);
    });
  }
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kView);
}

}  // namespace

void Budget::FailSteps() const {
  Raise({ErrorKind::kExhausted,
         fmt::format("the template takes more than {} steps", limits_.max_steps), 0});
}
void Budget::FailMemory() const {
  Raise({ErrorKind::kExhausted,
         fmt::format("the template needs more than {} bytes of memory", limits_.max_memory_bytes),
         0});
}
void Budget::FailDepth() const {
  Raise({ErrorKind::kExhausted,
         fmt::format("the template nests more than {} levels deep", limits_.max_depth), 0});
}

Object::~Object() {
  if (budget_ != nullptr) budget_->Give(charged_);
}

Value Value::Int(int64_t value) {
  Value out(Kind::kInt);
  out.int_ = value;
  return out;
}

Value Value::Float(double value) {
  Value out(Kind::kFloat);
  out.float_ = value;
  return out;
}

Value Value::String(Budget* budget, std::string text) {
  return Value(Kind::kString, std::make_shared<StringObject>(budget, std::move(text)));
}
Value Value::List(Budget* budget, std::vector<Value> items) {
  return Value(Kind::kList, std::make_shared<ListObject>(budget, std::move(items)));
}
Value Value::Tuple(Budget* budget, std::vector<Value> items) {
  return Value(Kind::kTuple, std::make_shared<ListObject>(budget, std::move(items)));
}
Value Value::Iterator(Budget* budget, std::vector<Value> items) {
  return Value(Kind::kIterator, std::make_shared<ListObject>(budget, std::move(items)));
}
Value Value::View(Budget* budget, std::string_view name, std::vector<Value> items) {
  auto list = std::make_shared<ListObject>(budget, std::move(items));
  list->view_name = name;
  return Value(Kind::kView, std::move(list));
}
Value Value::Dict(Budget* budget) {
  auto dict = std::make_shared<DictObject>(budget);
  dict->Charge(2 * kObjectBytes);
  return Value(Kind::kDict, std::move(dict));
}
Value Value::Namespace(Budget* budget) {
  Value out = Dict(budget);
  out.kind_ = Kind::kNamespace;
  return out;
}
Value Value::Range(Budget* budget, int64_t start, int64_t stop, int64_t step) {
  return Value(Kind::kRange, std::make_shared<RangeObject>(budget, start, stop, step));
}
Value Value::Callable(std::shared_ptr<CallableObject> callable) {
  return Value(Kind::kCallable, std::move(callable));
}
Value Value::Undefined(Budget* budget, std::string hint) {
  return Value(Kind::kUndefined, std::make_shared<StringObject>(budget, std::move(hint)));
}

double Value::number() const {
  return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_);
}
const std::string& Value::text() const {
  QUIRE_DCHECK(kind_ == Kind::kString);
  return static_cast<const StringObject&>(*object_).text;
}
int64_t Value::code_points() const {
  return static_cast<const StringObject&>(*object_).code_points;
}
const std::vector<Value>& Value::items() const {
  return list().items;
}
ListObject& Value::list() const {
  QUIRE_DCHECK(is_sequence() || kind_ == Kind::kView || kind_ == Kind::kIterator);
  return static_cast<ListObject&>(*object_);
}
DictObject& Value::dict() const {
  QUIRE_DCHECK(kind_ == Kind::kDict || kind_ == Kind::kNamespace);
  return static_cast<DictObject&>(*object_);
}
const RangeObject& Value::range() const {
  QUIRE_DCHECK(kind_ == Kind::kRange);
  return static_cast<const RangeObject&>(*object_);
}
CallableObject& Value::callable() const {
  QUIRE_DCHECK(kind_ == Kind::kCallable);
  return static_cast<CallableObject&>(*object_);
}
std::string_view Value::undefined_hint() const {
  if (object_ == nullptr) return "the value is undefined";
  return static_cast<const StringObject&>(*object_).text;
}

std::string_view Value::TypeName() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return list().view_name;
    case Kind::kIterator:
      return "generator";
    case Kind::kCallable:
      return callable().TypeName();
  }
  return "object";
}

void ReleaseFlat(std::vector<Value>&& values) {
  thread_local std::vector<Value>* pending = nullptr;
  if (pending != nullptr) {
    for (Value& value : values) {
      if (value.object() != nullptr) pending->push_back(std::move(value));
    }
    return;
  }
  std::vector<Value> queue = std::move(values);
  pending = &queue;
  while (!queue.empty()) {
    Value last = std::move(queue.back());
    queue.pop_back();
  }
  pending = nullptr;
}

ListObject::ListObject(Budget* budget, std::vector<Value> values)
    : Object(budget), items(std::move(values)) {
  Charge(kObjectBytes + static_cast<int64_t>(items.size()) * kValueBytes);
}

ListObject::~ListObject() {
  ReleaseFlat(std::move(items));
}

void ListObject::Append(Value value) {
  Charge(kValueBytes);
  items.push_back(std::move(value));
}

bool KeyLess::operator()(const Value& a, const Value& b) const {
  const int rank = KeyRank(a);
  if (rank != KeyRank(b)) return rank < KeyRank(b);
  if (rank == 0) return CompareNumbers(a, b) < 0;
  if (rank == 1) return a.text() < b.text();
  if (rank == 3) {
    return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(),
                                        b.items().end(), KeyLess());
  }
  return rank == 5 && a.object() < b.object();
}

DictObject::~DictObject() {
  Clear();
}

void DictObject::Clear() {
  index_.clear();
  std::vector<Value> values;
  values.reserve(2 * entries_.size());
  for (Entry& entry : entries_) {
    values.push_back(std::move(entry.first));
    values.push_back(std::move(entry.second));
  }
  entries_.clear();
  ReleaseFlat(std::move(values));
}

std::optional<size_t> DictObject::IndexOf(const Value& key) const {
  if (entries_.size() <= kLinearMax) {
    KeyLess less;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!less(key, entries_[i].first) && !less(entries_[i].first, key)) return i;
    }
    return std::nullopt;
  }
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

const Value* DictObject::Find(const Value& key) const {
  if (!IsHashable(key)) Fail("unhashable type: '{}'", key.TypeName());
  const std::optional<size_t> index = IndexOf(key);
  return index ? &entries_[*index].second : nullptr;
}

const Value* DictObject::Find(std::string_view key) const {
  if (entries_.size() > kLinearMax) return Find(Value::String(nullptr, std::string(key)));
  for (const Entry& entry : entries_) {
    if (entry.first.is(Kind::kString) && entry.first.text() == key) return &entry.second;
  }
  return nullptr;
}

void DictObject::Set(Value key, Value value) {
  if (!IsHashable(key)) Fail("unhashable type: '{}'", key.TypeName());
  if (const std::optional<size_t> index = IndexOf(key)) {
    entries_[*index].second = std::move(value);
    return;
  }
  Charge(4 * kValueBytes);
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kLinearMax + 1) {
    Reindex();
  } else if (entries_.size() > kLinearMax) {
    index_.emplace(entries_.back().first, entries_.size() - 1);
  }
}

void DictObject::Erase(const Value& key) {
  const std::optional<size_t> index = IndexOf(key);
  if (!index) return;
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(*index));
  Reindex();
}

void DictObject::Reindex() {
  index_.clear();
  if (entries_.size() <= kLinearMax) return;
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
}

int64_t RangeObject::size() const {
  // In 128 bits: the ends may lie 2^64 apart.
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  if (distance <= 0) return 0;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = (distance + stride - 1) / stride;
  return count > INT64_MAX ? INT64_MAX : static_cast<int64_t>(count);
}

std::optional<Value> CallableObject::Attribute(Interpreter&, std::string_view) {
  return std::nullopt;
}

Cursor::Cursor(Budget& budget, Value iterable) : budget_(budget), source_(std::move(iterable)) {
  if (!IsIterable(source_)) Fail("'{}' object is not iterable", source_.TypeName());
  if (source_.is(Kind::kDict)) {
    budget.StepBytes(static_cast<int64_t>(source_.dict().entries().size()) * kValueBytes);
    for (const auto& [key, value] : source_.dict().entries()) keys_.push_back(key);
  }
}

std::optional<Value> Cursor::Next() {
  budget_.Step();
  switch (source_.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      if (position_ >= source_.items().size()) return std::nullopt;
      return source_.items()[position_++];
    case Kind::kIterator: {
      ListObject& list = source_.list();
      if (list.next >= list.items.size()) return std::nullopt;
      return std::move(list.items[list.next++]);
    }
    case Kind::kDict:
      if (position_ >= keys_.size()) return std::nullopt;
      return keys_[position_++];
    case Kind::kString: {
      const std::string& text = source_.text();
      if (position_ >= text.size()) return std::nullopt;
      const size_t start = position_;
      NextCodePoint(text, position_);
      return Value::String(&budget_, text.substr(start, position_ - start));
    }
    case Kind::kRange: {
      const RangeObject& range = source_.range();
      if (static_cast<int64_t>(position_) >= range.size()) return std::nullopt;
      return Value::Int(range.at(static_cast<int64_t>(position_++)));
    }
    default:
      return std::nullopt;  // undefined iterates over nothing
  }
}

std::optional<int64_t> Cursor::Length() const {
  return jinja::Length(source_);
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kCallable:
      return false;
    default:
      return true;
  }
}

std::vector<Value> ToVector(Budget& budget, const Value& iterable) {
  std::vector<Value> out;
  Cursor cursor(budget, iterable);
  while (std::optional<Value> item = cursor.Next()) {
    if ((out.size() & 1023) == 0) {
      budget.CheckRoom(static_cast<int64_t>(2 * out.size()) * kValueBytes);
    }
    out.push_back(std::move(*item));
  }
  return out;
}

bool IsTruthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kNamespace:
    case Kind::kIterator:
    case Kind::kCallable:
      return true;
    default:
      return Length(value).value_or(1) != 0;
  }
}

std::optional<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.code_points();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries().size());
    case Kind::kRange:
      return value.range().size();
    default:
      return std::nullopt;
  }
}

bool IsHashable(const Value& value) {
  // Tuples as keys are small in practice; the bound keeps comparing them cheap and flat.
  int values_left = 256;
  return IsHashableWithin(value, 16, values_left);
}

}  // namespace quire::text::jinja
