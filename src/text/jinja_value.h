// The values templates compute with: Python's None, bool, int (64 bits), float, str, list, tuple
// and dict, Jinja's Undefined and namespace, and things that can only be iterated or called.
//
// A Value is small and copied freely; strings and containers are shared, containers by reference
// as in Python. Every object made while rendering is charged to the rendering's Budget and gives
// its bytes back when it dies, so no Value may outlive its Budget (constants of a parsed template
// are charged to none). Cycles are possible through mutation; Interpreter breaks them at its end.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_budget.h"

namespace quire::text::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kRange,
  kView,      // dict.items(), .keys(), .values(): has a length, no index
  kIterator,  // what map, select, ... give: no length, consumed once
  kCallable   // functions, methods, macros, the loop variable
};

// What values share. Charged to a budget (or none) for as long as it lives.
class Object {
 public:
  explicit Object(Budget* budget) : budget_(budget) {}
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Drops what this object refers to, to break cycles.
  virtual void Clear() {}
  // True the first time.
  bool MarkNoted() { return !std::exchange(noted_, true); }

  void Charge(int64_t bytes) {
    if (budget_ == nullptr) return;
    budget_->Take(bytes);
    charged_ += bytes;
  }

 private:
  Budget* budget_;
  int64_t charged_ = 0;
  bool noted_ = false;
};

class Value;
class DictObject;
class ListObject;
struct RangeObject;
class CallableObject;

class Value {
 public:
  Value() = default;  // Undefined without a hint
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(std::same_as<bool> auto value) {  // not what merely converts to bool
    Value out(Kind::kBool);
    out.int_ = value ? 1 : 0;
    return out;
  }
  static Value Int(int64_t value);
  static Value Float(double value);
  // A string charged to `budget`; null for constants.
  static Value String(Budget* budget, std::string text);
  static Value List(Budget* budget, std::vector<Value> items);
  static Value Tuple(Budget* budget, std::vector<Value> items);
  static Value Iterator(Budget* budget, std::vector<Value> items);
  static Value View(Budget* budget, std::string_view name, std::vector<Value> items);
  static Value Dict(Budget* budget);
  static Value Namespace(Budget* budget);
  static Value Range(Budget* budget, int64_t start, int64_t stop, int64_t step);
  static Value Callable(std::shared_ptr<CallableObject> callable);
  // Undefined that says `hint` when it is used.
  static Value Undefined(Budget* budget, std::string hint);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const {
    return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat;
  }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Each requires its kind.
  int64_t integer() const { return int_; }  // kBool (0, 1) and kInt
  double number() const;                    // kBool, kInt and kFloat
  const std::string& text() const;          // kString
  int64_t code_points() const;              // kString: len()
  const std::vector<Value>& items() const;  // kList, kTuple, kView, kIterator
  ListObject& list() const;                 // the same, to change it
  DictObject& dict() const;                 // kDict, kNamespace
  const RangeObject& range() const;         // kRange
  CallableObject& callable() const;         // kCallable
  std::string_view undefined_hint() const;  // kUndefined
  const std::shared_ptr<Object>& object() const { return object_; }

  // Python's type name, as in its error messages.
  std::string_view TypeName() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind_ = Kind::kUndefined;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

// Drops `values` one after another, not one inside the other: a list nested a million deep must not
// take a million stack frames. Every object that holds values releases them with this.
void ReleaseFlat(std::vector<Value>&& values);

// Lists, tuples, views and iterators.
class ListObject : public Object {
 public:
  ListObject(Budget* budget, std::vector<Value> values);
  ~ListObject() override;
  void Clear() override { items.clear(); }
  void Append(Value value);

  std::vector<Value> items;
  size_t next = 0;             // kIterator: the first item not consumed
  std::string_view view_name;  // kView: "dict_items", ...
};

// Orders the values that may be keys of a dict: numbers by value, then strings, None, tuples.
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

// A dict that remembers the order of insertion. Looking up is linear in small dicts and
// logarithmic beyond, whatever the keys.
class DictObject : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  explicit DictObject(Budget* budget) : Object(budget) {}
  ~DictObject() override;
  void Clear() override;

  // nullptr where there is none. Throws where `key` cannot be a key.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);
  // Linear in the dict.
  void Erase(const Value& key);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  static constexpr size_t kLinearMax = 8;
  std::optional<size_t> IndexOf(const Value& key) const;
  void Reindex();

  std::vector<Entry> entries_;
  std::map<Value, size_t, KeyLess> index_;  // empty while entries_ is small
};

struct RangeObject : Object {
  RangeObject(Budget* budget, int64_t from, int64_t to, int64_t by)
      : Object(budget), start(from), stop(to), step(by) {}
  int64_t size() const;
  // 0 <= index < size(); the product may leave 64 bits on its way, the result does not.
  int64_t at(int64_t index) const {
    return static_cast<int64_t>(static_cast<uint64_t>(start) +
                                static_cast<uint64_t>(index) * static_cast<uint64_t>(step));
  }

  int64_t start, stop, step;  // step != 0
};

class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class CallableObject : public Object {
 public:
  using Object::Object;
  virtual Value Call(Interpreter& interpreter, Arguments arguments) = 0;
  virtual std::string Repr() const = 0;
  virtual std::string_view TypeName() const { return "function"; }
  // nullopt where there is no such attribute.
  virtual std::optional<Value> Attribute(Interpreter& interpreter, std::string_view name);
};

// Steps through what Python could iterate over. Lists are read live, dicts by their keys at the
// start, iterators are consumed.
class Cursor {
 public:
  // Throws where `iterable` cannot be iterated.
  Cursor(Budget& budget, Value iterable);
  std::optional<Value> Next();
  // len(); nullopt for iterators.
  std::optional<int64_t> Length() const;

 private:
  Budget& budget_;
  Value source_;
  size_t position_ = 0;
  std::vector<Value> keys_;
};

bool IsIterable(const Value& value);
std::vector<Value> ToVector(Budget& budget, const Value& iterable);

// Python's bool().
bool IsTruthy(const Value& value);
// len(), nullopt where there is none.
std::optional<int64_t> Length(const Value& value);
// ==
bool Equals(Budget& budget, const Value& a, const Value& b);
// -1, 0, 1. Throws where Python has no order; `op` names the operator in the message.
int Compare(Budget& budget, const Value& a, const Value& b, std::string_view op);
// b in a
bool Contains(Budget& budget, const Value& container, const Value& item);
bool IsHashable(const Value& value);

// Text being built: checks the budget as it grows.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget) {}
  void Append(std::string_view text) {
    budget_.StepBytes(static_cast<int64_t>(text.size()));
    budget_.CheckRoom(static_cast<int64_t>(text_.size() + text.size()));
    text_ += text;
  }
  Value ToValue() { return Value::String(&budget_, std::move(text_)); }
  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }
  Budget& budget() { return budget_; }

 private:
  Budget& budget_;
  std::string text_;
};

// str() and repr().
void AppendStr(Writer& out, const Value& value);
void AppendRepr(Writer& out, const Value& value);
std::string ToStr(Budget& budget, const Value& value);

}  // namespace quire::text::jinja
