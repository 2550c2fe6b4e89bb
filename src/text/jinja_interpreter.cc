#include "text/jinja_interpreter.h"

#include "text/jinja_objects.h"

namespace quire::text::jinja {

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Clear() {
  std::vector<Value> values;
  values.reserve(variables_.size());
  for (auto& [name, value] : variables_) values.push_back(std::move(value));
  variables_.clear();
  ReleaseFlat(std::move(values));
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, old] : variables_) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  Charge(sizeof(variables_[0]));
  variables_.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const Limits& limits, const std::tm& now)
    : budget_(limits), now_(now), root_(std::make_shared<Scope>(&budget_, nullptr)) {}

Interpreter::~Interpreter() {
  root_->Clear();
  for (const std::shared_ptr<Object>& object : noted_) object->Clear();
}

std::string Interpreter::Render(const Body& body) {
  std::string out;
  out_ = &out;
  rendered_ = &out;
  Execute(body, root_);
  return out;
}

ScopePtr Interpreter::NewScope(const ScopePtr& outer) {
  auto scope = std::make_shared<Scope>(&budget_, outer);
  scope->Charge(128);
  return scope;
}

Value Interpreter::Lookup(std::string_view name, const Scope& scope) {
  if (const Value* value = scope.Find(name)) return *value;
  if (const Value* function = FindFunction(name)) return *function;
  return MakeUndefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::Note(std::shared_ptr<Object> object) {
  if (object->MarkNoted()) noted_.push_back(std::move(object));
}

void Interpreter::NoteMutation(const Value& container, const Value& value) {
  if (value.object() != nullptr && !value.is(Kind::kString)) Note(container.object());
}

Value Interpreter::Attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) Fail("{}", object.undefined_hint());
  if (object.is(Kind::kCallable)) {
    if (std::optional<Value> value = object.callable().Attribute(*this, name)) return *value;
  }
  if (object.is(Kind::kNamespace)) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  if (const Builtin method = FindMethod(object, name)) {
    return Value::Callable(std::make_shared<MethodObject>(&budget_, name, object, method));
  }
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  if (object.is(Kind::kNone)) return MakeUndefined(fmt::format("None has no attribute '{}'", name));
  return MakeUndefined(fmt::format("'{} object' has no attribute '{}'", object.TypeName(), name));
}

Value Interpreter::Item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) Fail("{}", object.undefined_hint());
  const bool has_index =
      object.is_sequence() || object.is(Kind::kString) || object.is(Kind::kRange);
  if (has_index && key.is_integral()) {
    const int64_t length = Length(object).value_or(0);
    int64_t index = key.integer();
    if (index < 0) index += length;
    if (index >= 0 && index < length) return ElementAt(budget_, object, index);
  } else if (object.is(Kind::kDict) && IsHashable(key)) {
    if (const Value* value = object.dict().Find(key)) return *value;
  }
  if (key.is(Kind::kString)) {
    if (!object.is(Kind::kDict)) return Attribute(object, key.text());
    if (const Builtin method = FindMethod(object, key.text())) {
      return Value::Callable(std::make_shared<MethodObject>(&budget_, key.text(), object, method));
    }
    return MakeUndefined(fmt::format("'dict object' has no attribute '{}'", key.text()));
  }
  Writer repr(budget_);
  AppendRepr(repr, key);
  return MakeUndefined(fmt::format("{} object has no element {}", object.TypeName(), repr.text()));
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  if (callee.is(Kind::kUndefined)) Fail("{}", callee.undefined_hint());
  if (!callee.is(Kind::kCallable)) Fail("'{}' object is not callable", callee.TypeName());
  Nesting nesting(budget_);
  const std::shared_ptr<Object> keep = callee.object();
  return callee.callable().Call(*this, std::move(arguments));
}

Value Interpreter::ApplyFilter(std::string_view name, const Value& operand,
                               const Arguments& arguments) {
  budget_.Step();
  const Builtin filter = FindFilter(name);
  if (filter == nullptr) Fail("there is no filter '{}'", name);
  return filter(*this, operand, arguments);
}

bool Interpreter::ApplyTest(std::string_view name, const Value& operand,
                            const Arguments& arguments) {
  budget_.Step();
  const Builtin test = FindTest(name);
  if (test == nullptr) Fail("there is no test '{}'", name);
  return IsTruthy(test(*this, operand, arguments));
}

}  // namespace quire::text::jinja
