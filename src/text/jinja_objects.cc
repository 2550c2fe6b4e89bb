#include "text/jinja_objects.h"

#include <utility>

#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

LoopObject& LoopOf(const Value& self) {
  return static_cast<LoopObject&>(self.callable());
}

Value CallCycle(Interpreter&, const Value& self, const Arguments& arguments) {
  return LoopOf(self).Cycle(arguments);
}

Value CallChanged(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return LoopOf(self).Changed(interpreter, arguments);
}

}  // namespace

std::optional<Value> MacroObject::Attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "name") return interpreter.MakeString(macro_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : macro_.parameters) {
      names.push_back(interpreter.MakeString(parameter));
    }
    return interpreter.MakeTuple(std::move(names));
  }
  if (name == "caller") return Value::Bool(macro_.uses_caller);
  if (name == "catch_kwargs") return Value::Bool(macro_.uses_kwargs);
  if (name == "catch_varargs") return Value::Bool(macro_.uses_varargs);
  return std::nullopt;
}

LoopObject::LoopObject(Interpreter& interpreter, const Statement& loop, const Value& iterable,
                       ScopePtr scope, int depth)
    : CallableObject(&interpreter.budget()),
      loop_(loop),
      cursor_(interpreter.budget(), iterable),
      scope_(std::move(scope)),
      depth_(depth) {
  Charge(512);
}

void LoopObject::Clear() {
  std::vector<Value> values = std::exchange(ahead_, {});
  for (std::optional<Value>* value : {&peeked_, &previous_, &current_, &changed_}) {
    if (*value) values.push_back(std::move(**value));
    value->reset();
  }
  ReleaseFlat(std::move(values));
}

std::optional<Value> LoopObject::Take(Interpreter& interpreter) {
  if (ahead_next_ < ahead_.size()) return std::move(ahead_[ahead_next_++]);
  while (std::optional<Value> item = cursor_.Next()) {
    if (loop_.condition == nullptr) return item;
    const ScopePtr scope = interpreter.NewScope(scope_);
    interpreter.Assign(loop_.target, *item, scope);
    if (IsTruthy(interpreter.Evaluate(*loop_.condition, scope))) return item;
  }
  return std::nullopt;
}

const std::optional<Value>& LoopObject::Peek(Interpreter& interpreter) {
  if (!has_peeked_) {
    peeked_ = Take(interpreter);
    has_peeked_ = true;
  }
  return peeked_;
}

std::optional<Value> LoopObject::Advance(Interpreter& interpreter) {
  std::optional<Value> item = has_peeked_ ? std::move(peeked_) : Take(interpreter);
  has_peeked_ = false;
  peeked_.reset();
  if (!item) return std::nullopt;
  ++index_;
  previous_ = std::move(current_);
  current_ = *item;
  return item;
}

int64_t LoopObject::CountItems(Interpreter& interpreter) {
  if (length_) return *length_;
  if (loop_.condition == nullptr) length_ = cursor_.Length();
  if (!length_) {
    std::vector<Value> rest;
    while (std::optional<Value> item = Take(interpreter)) {
      Charge(sizeof(Value));
      rest.push_back(std::move(*item));
    }
    length_ = index_ + 1 + (has_peeked_ && peeked_ ? 1 : 0) + static_cast<int64_t>(rest.size());
    ahead_ = std::move(rest);
    ahead_next_ = 0;
  }
  return *length_;
}

Value LoopObject::Cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) Fail("cycle() needs something to cycle through");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(index_ % count)];
}

Value LoopObject::Changed(Interpreter& interpreter, const Arguments& arguments) {
  Value now = interpreter.MakeTuple(arguments.positional);
  if (changed_ && Equals(interpreter.budget(), *changed_, now)) return Value::Bool(false);
  for (const Value& value : arguments.positional) {
    interpreter.NoteMutation(Value::Callable(shared_from_this()), value);
  }
  changed_ = std::move(now);
  return Value::Bool(true);
}

Value LoopObject::Call(Interpreter& interpreter, Arguments arguments) {
  if (!loop_.is_recursive) Fail("a loop that calls itself must be marked 'recursive'");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    Fail("loop() takes one argument, what to iterate over");
  }
  Interpreter::Capture capture(interpreter);
  interpreter.ExecuteFor(loop_, arguments.positional[0], scope_, depth_ + 1);
  return capture.ToValue();
}

std::optional<Value> LoopObject::Attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "index") return Value::Int(index_ + 1);
  if (name == "index0") return Value::Int(index_);
  if (name == "first") return Value::Bool(index_ == 0);
  if (name == "last") return Value::Bool(!Peek(interpreter));
  if (name == "length") return Value::Int(CountItems(interpreter));
  if (name == "revindex") return Value::Int(CountItems(interpreter) - index_);
  if (name == "revindex0") return Value::Int(CountItems(interpreter) - index_ - 1);
  if (name == "depth") return Value::Int(depth_ + 1);
  if (name == "depth0") return Value::Int(depth_);
  if (name == "previtem") {
    return previous_ ? *previous_ : interpreter.MakeUndefined("there is no previous item");
  }
  if (name == "nextitem") {
    const std::optional<Value>& next = Peek(interpreter);
    return next ? *next : interpreter.MakeUndefined("there is no next item");
  }
  const bool cycle = name == "cycle";
  if (!cycle && name != "changed") return std::nullopt;
  return Value::Callable(std::make_shared<MethodObject>(&interpreter.budget(), name,
                                                        Value::Callable(shared_from_this()),
                                                        cycle ? CallCycle : CallChanged));
}

Value ElementAt(Budget& budget, const Value& object, int64_t index) {
  if (object.is(Kind::kRange)) return Value::Int(object.range().at(index));
  if (!object.is(Kind::kString)) return object.items()[static_cast<size_t>(index)];
  const std::string& text = object.text();
  size_t offset = static_cast<size_t>(index);
  if (object.code_points() != static_cast<int64_t>(text.size())) {
    budget.StepBytes(static_cast<int64_t>(text.size()));
    offset = ByteOffset(text, index);
  }
  size_t end = offset;
  NextCodePoint(text, end);
  return Value::String(&budget, text.substr(offset, end - offset));
}

}  // namespace quire::text::jinja
