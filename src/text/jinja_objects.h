// The callable values: built-in functions, methods bound to their object, macros, the loop
// variable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_interpreter.h"

namespace quire::text::jinja {

class FunctionObject : public CallableObject {
 public:
  FunctionObject(std::string_view name, Builtin function)
      : CallableObject(nullptr), name_(name), function_(function) {}
  Value Call(Interpreter& interpreter, Arguments arguments) override {
    return function_(interpreter, Value(), arguments);
  }
  std::string Repr() const override { return fmt::format("<function {}>", name_); }

 private:
  std::string_view name_;
  Builtin function_;
};

class MethodObject : public CallableObject {
 public:
  MethodObject(Budget* budget, std::string_view name, Value self, Builtin method)
      : CallableObject(budget), name_(name), self_(std::move(self)), method_(method) {
    Charge(128);
  }
  ~MethodObject() override { ReleaseFlat({std::move(self_)}); }
  Value Call(Interpreter& interpreter, Arguments arguments) override {
    return method_(interpreter, self_, arguments);
  }
  std::string Repr() const override {
    return fmt::format("<built-in method {} of {} object>", name_, self_.TypeName());
  }
  std::string_view TypeName() const override { return "builtin_function_or_method"; }

 private:
  std::string name_;
  Value self_;
  Builtin method_;
};

class MacroObject : public CallableObject {
 public:
  MacroObject(Budget* budget, const Macro& macro, ScopePtr closure)
      : CallableObject(budget), macro_(macro), closure_(std::move(closure)) {
    Charge(128);
  }
  Value Call(Interpreter& interpreter, Arguments arguments) override {
    return interpreter.CallMacro(macro_, closure_, std::move(arguments));
  }
  std::string Repr() const override {
    return macro_.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", macro_.name);
  }
  std::string_view TypeName() const override { return "Macro"; }
  std::optional<Value> Attribute(Interpreter& interpreter, std::string_view name) override;

 private:
  const Macro& macro_;
  ScopePtr closure_;
};

// The variable `loop`. Items are taken, and the loop's filter is asked, no earlier than needed.
class LoopObject : public CallableObject, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(Interpreter& interpreter, const Statement& loop, const Value& iterable, ScopePtr scope,
             int depth);
  ~LoopObject() override { LoopObject::Clear(); }
  void Clear() override;

  // The next item of the loop, nullopt at its end.
  std::optional<Value> Advance(Interpreter& interpreter);

  Value Call(Interpreter& interpreter, Arguments arguments) override;
  std::string Repr() const override { return "<LoopContext>"; }
  std::string_view TypeName() const override { return "LoopContext"; }
  std::optional<Value> Attribute(Interpreter& interpreter, std::string_view name) override;
  // cycle() and changed(), called as methods.
  Value Cycle(const Arguments& arguments) const;
  Value Changed(Interpreter& interpreter, const Arguments& arguments);

 private:
  std::optional<Value> Take(Interpreter& interpreter);
  const std::optional<Value>& Peek(Interpreter& interpreter);
  int64_t CountItems(Interpreter& interpreter);

  const Statement& loop_;
  Cursor cursor_;
  ScopePtr scope_;
  int depth_;
  int64_t index_ = -1;
  std::vector<Value> ahead_;  // taken to learn the length, not yet reached
  size_t ahead_next_ = 0;
  std::optional<int64_t> length_;
  bool has_peeked_ = false;
  std::optional<Value> peeked_;  // the item after the current one, nullopt at the end
  std::optional<Value> previous_, current_;
  std::optional<Value> changed_;  // what changed() was last asked
};

// object[index] of a list, tuple, string or range; 0 <= index < length.
Value ElementAt(Budget& budget, const Value& object, int64_t index);

}  // namespace quire::text::jinja
