#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"

namespace quire::text::jinja {

Value Interpreter::Evaluate(const Expr& expr, const ScopePtr& scope) {
  Nesting nesting(budget_);
  budget_.Step();
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return Lookup(expr.name, *scope);
    case ExprKind::kList:
      return MakeList(EvaluateAll(expr.parts, scope));
    case ExprKind::kTuple:
      return MakeTuple(EvaluateAll(expr.parts, scope));
    case ExprKind::kDict:
      return EvaluateDict(expr, scope);
    case ExprKind::kAttribute:
      return Attribute(Evaluate(*expr.parts[0], scope), expr.name);
    case ExprKind::kSubscript:
      return EvaluateSubscript(expr, scope);
    case ExprKind::kSlice:
      Fail("a slice belongs into a subscript of its own");
    case ExprKind::kCall:
      return EvaluateCall(expr, scope);
    case ExprKind::kFilter:
      return EvaluateFilter(expr, Value(), scope);
    case ExprKind::kTest: {
      const Value operand = Evaluate(*expr.parts[0], scope);
      return Value::Bool(ApplyTest(expr.name, operand, EvaluateArguments(expr, scope)));
    }
    case ExprKind::kNot:
      return Value::Bool(!IsTruthy(Evaluate(*expr.parts[0], scope)));
    case ExprKind::kNegate:
      return Negate(Evaluate(*expr.parts[0], scope));
    case ExprKind::kPlus:
      return Plus(Evaluate(*expr.parts[0], scope));
    case ExprKind::kAnd: {
      Value left = Evaluate(*expr.parts[0], scope);
      return IsTruthy(left) ? Evaluate(*expr.parts[1], scope) : left;
    }
    case ExprKind::kOr: {
      Value left = Evaluate(*expr.parts[0], scope);
      return IsTruthy(left) ? left : Evaluate(*expr.parts[1], scope);
    }
    case ExprKind::kConditional:
      return EvaluateConditional(expr, scope);
    case ExprKind::kCompare:
      return EvaluateCompare(expr, scope);
    case ExprKind::kArithmetic: {
      const Value left = Evaluate(*expr.parts[0], scope);
      const Value right = Evaluate(*expr.parts[1], scope);
      line_ = expr.line;
      return Arithmetic(*this, expr.operators[0], left, right);
    }
    case ExprKind::kConcat:
      return EvaluateConcat(expr, scope);
  }
  return Value();
}

Value Interpreter::EvaluateDict(const Expr& expr, const ScopePtr& scope) {
  Value dict = Value::Dict(&budget_);
  for (size_t i = 0; i + 1 < expr.parts.size(); i += 2) {
    Value key = Evaluate(*expr.parts[i], scope);
    dict.dict().Set(std::move(key), Evaluate(*expr.parts[i + 1], scope));
  }
  return dict;
}

Value Interpreter::EvaluateSubscript(const Expr& expr, const ScopePtr& scope) {
  const Value object = Evaluate(*expr.parts[0], scope);
  if (expr.parts[1]->kind == ExprKind::kSlice) {
    return EvaluateSlice(object, *expr.parts[1], scope);
  }
  const Value key = Evaluate(*expr.parts[1], scope);
  line_ = expr.line;
  return Item(object, key);
}

Value Interpreter::EvaluateSlice(const Value& object, const Expr& slice, const ScopePtr& scope) {
  SliceBounds bounds{Value::None(), Value::None(), Value::None()};
  if (slice.parts[0] != nullptr) bounds.start = Evaluate(*slice.parts[0], scope);
  if (slice.parts[1] != nullptr) bounds.stop = Evaluate(*slice.parts[1], scope);
  if (slice.parts[2] != nullptr) bounds.step = Evaluate(*slice.parts[2], scope);
  return Slice(*this, object, bounds);
}

Value Interpreter::EvaluateConditional(const Expr& expr, const ScopePtr& scope) {
  if (IsTruthy(Evaluate(*expr.parts[0], scope))) return Evaluate(*expr.parts[1], scope);
  if (expr.parts[2] != nullptr) return Evaluate(*expr.parts[2], scope);
  return MakeUndefined("the inline 'if' was false and has no 'else'");
}

Value Interpreter::EvaluateCompare(const Expr& expr, const ScopePtr& scope) {
  Value left = Evaluate(*expr.parts[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = Evaluate(*expr.parts[i + 1], scope);
    line_ = expr.line;
    if (!CompareWith(*this, expr.operators[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConcat(const Expr& expr, const ScopePtr& scope) {
  Writer out(budget_);
  for (const Value& value : EvaluateAll(expr.parts, scope)) AppendStr(out, value);
  return out.ToValue();
}

Value Interpreter::EvaluateCall(const Expr& expr, const ScopePtr& scope) {
  const Value callee = Evaluate(*expr.parts[0], scope);
  Arguments arguments = EvaluateArguments(expr, scope);
  line_ = expr.line;
  return Call(callee, std::move(arguments));
}

Value Interpreter::EvaluateFilter(const Expr& expr, const Value& text, const ScopePtr& scope) {
  Nesting nesting(budget_);
  Value operand = text;
  if (const Expr* inner = expr.parts[0].get()) {
    operand = inner->kind == ExprKind::kFilter ? EvaluateFilter(*inner, text, scope)
                                               : Evaluate(*inner, scope);
  }
  const Arguments arguments = EvaluateArguments(expr, scope);
  line_ = expr.line;
  return ApplyFilter(expr.name, operand, arguments);
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExprPtr>& exprs,
                                            const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(Evaluate(*expr, scope));
  return values;
}

Arguments Interpreter::EvaluateArguments(const Expr& expr, const ScopePtr& scope) {
  Arguments out;
  if (expr.arguments == nullptr) return out;
  out.positional = EvaluateAll(expr.arguments->positional, scope);
  for (const auto& [name, value] : expr.arguments->named) {
    out.named.emplace_back(name, Evaluate(*value, scope));
  }
  if (expr.arguments->star != nullptr) {
    for (Value& value : ToVector(budget_, Evaluate(*expr.arguments->star, scope))) {
      out.positional.push_back(std::move(value));
    }
  }
  if (expr.arguments->double_star != nullptr) {
    const Value mapping = Evaluate(*expr.arguments->double_star, scope);
    if (!mapping.is(Kind::kDict)) Fail("the argument after ** must be a mapping");
    if (mapping.dict().entries().size() > 256) Fail("a call takes at most 256 keywords");
    for (const auto& [key, value] : mapping.dict().entries()) {
      if (!key.is(Kind::kString)) Fail("keywords must be strings");
      for (const auto& [name, other] : out.named) {
        if (name == key.text()) Fail("the argument '{}' is given twice", name);
      }
      budget_.Step();
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

}  // namespace quire::text::jinja
