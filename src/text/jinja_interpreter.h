// Runs a parsed template: scopes, statements, expressions and calls. One Interpreter renders one
// template once; filters, tests, methods and functions get it to reach the budget and each other.
//
// Every failure is thrown as Failure; values never outlive the Interpreter.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace quire::text::jinja {

// Variables of a block; what is not here is looked up outside.
class Scope : public Object {
 public:
  Scope(Budget* budget, std::shared_ptr<Scope> outer) : Object(budget), outer_(std::move(outer)) {}

  const Value* Find(std::string_view name) const;
  // `name` must live as long as the scope: it is a part of the template or of the arguments.
  void Set(std::string_view name, Value value);
  ~Scope() override { Scope::Clear(); }
  void Clear() override;

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  // `now`: what strftime_now formats.
  Interpreter(const Limits& limits, const std::tm& now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The variables every template sees.
  Scope& globals() { return *root_; }
  std::string Render(const Body& body);
  // The line being executed, for messages.
  int line() const { return line_; }

  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }

  Value MakeString(std::string text) { return Value::String(&budget_, std::move(text)); }
  Value MakeList(std::vector<Value> items) { return Value::List(&budget_, std::move(items)); }
  Value MakeTuple(std::vector<Value> items) { return Value::Tuple(&budget_, std::move(items)); }
  Value MakeUndefined(std::string hint) { return Value::Undefined(&budget_, std::move(hint)); }

  // object.name: methods first, then items. Undefined where there is none.
  Value Attribute(const Value& object, std::string_view name);
  // object[key]: items first, then methods. Undefined where there is none.
  Value Item(const Value& object, const Value& key);
  Value Call(const Value& callee, Arguments arguments);
  Value ApplyFilter(std::string_view name, const Value& operand, const Arguments& arguments);
  bool ApplyTest(std::string_view name, const Value& operand, const Arguments& arguments);

  // Must be called when `container` was changed to hold `value`: only so can cycles arise.
  void NoteMutation(const Value& container, const Value& value);

 private:
  friend class LoopObject;
  friend class MacroObject;

  enum class Flow { kNext, kBreak, kContinue };

  // Collects what is output while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text_)) {}
    ~Capture() {
      interpreter_.out_ = outer_;
      interpreter_.budget_.Give(static_cast<int64_t>(text_.size()));
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Value ToValue() { return interpreter_.MakeString(text_); }

   private:
    Interpreter& interpreter_;
    std::string text_;
    std::string* outer_;
  };

  ScopePtr NewScope(const ScopePtr& outer);
  Value Lookup(std::string_view name, const Scope& scope);
  void Note(std::shared_ptr<Object> object);

  // jinja_statements.cc
  Flow Execute(const Body& body, const ScopePtr& scope);
  Flow Execute(const Statement& statement, const ScopePtr& scope);
  Flow ExecuteFor(const Statement& loop, const Value& iterable, const ScopePtr& scope, int depth);
  void ExecuteSetBlock(const Statement& statement, const ScopePtr& scope);
  Flow ExecuteFilterBlock(const Statement& statement, const ScopePtr& scope);
  Flow ExecuteWith(const Statement& statement, const ScopePtr& scope);
  void ExecuteMacro(const Statement& statement, const ScopePtr& scope);
  void ExecuteCallBlock(const Statement& statement, const ScopePtr& scope);
  void Assign(const Target& target, const Value& value, const ScopePtr& scope);
  void Emit(std::string_view text);
  void EmitValue(const Value& value);
  Value CallMacro(const Macro& macro, const ScopePtr& closure, Arguments arguments);
  void BindParameters(const Macro& macro, const ScopePtr& scope, Arguments& arguments);

  // jinja_expressions.cc
  Value Evaluate(const Expr& expr, const ScopePtr& scope);
  Value EvaluateDict(const Expr& expr, const ScopePtr& scope);
  Value EvaluateSubscript(const Expr& expr, const ScopePtr& scope);
  Value EvaluateSlice(const Value& object, const Expr& slice, const ScopePtr& scope);
  Value EvaluateConditional(const Expr& expr, const ScopePtr& scope);
  Value EvaluateCompare(const Expr& expr, const ScopePtr& scope);
  Value EvaluateConcat(const Expr& expr, const ScopePtr& scope);
  Value EvaluateCall(const Expr& expr, const ScopePtr& scope);
  // `text` is the operand where the innermost filter has none: the text of a block.
  Value EvaluateFilter(const Expr& expr, const Value& text, const ScopePtr& scope);
  std::vector<Value> EvaluateAll(const std::vector<ExprPtr>& exprs, const ScopePtr& scope);
  Arguments EvaluateArguments(const Expr& expr, const ScopePtr& scope);

  Budget budget_;  // first: values give back to it when they die
  std::tm now_;
  ScopePtr root_;
  std::string* out_ = nullptr;
  std::string* rendered_ = nullptr;
  int line_ = 1;
  std::vector<std::shared_ptr<Object>> noted_;
};

// What a filter, method or function gets; `self` is the operand (undefined for functions).
using Builtin = Value (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);

// nullptr where there is none.
Builtin FindFilter(std::string_view name);
Builtin FindMethod(const Value& self, std::string_view name);
// nullptr where there is none; the value is true or false.
Builtin FindTest(std::string_view name);
// range, namespace, raise_exception, ...; undefined where there is none.
const Value* FindFunction(std::string_view name);

// Operators, jinja_operators.cc.
Value Arithmetic(Interpreter& interpreter, Operator op, const Value& a, const Value& b);
Value Negate(const Value& value);
Value Plus(const Value& value);
bool CompareWith(Interpreter& interpreter, Operator op, const Value& a, const Value& b);

// object[start:stop:step] with null for a missing bound.
struct SliceBounds {
  Value start, stop, step;
};
Value Slice(Interpreter& interpreter, const Value& object, const SliceBounds& bounds);

}  // namespace quire::text::jinja
