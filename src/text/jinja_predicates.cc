// The tests behind `is`.
#include <map>

#include "text/jinja_interpreter.h"
#include "text/jinja_parameters.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

template <Kind kKind>
Value IsKind(Interpreter&, const Value& self, const Arguments& arguments) {
  Parameters("test", arguments, {});
  return Value::Bool(self.is(kKind));
}

Value IsDefined(Interpreter&, const Value& self, const Arguments& arguments) {
  Parameters("defined", arguments, {});
  return Value::Bool(!self.is(Kind::kUndefined));
}

// Undefined too: Jinja's has every operation, so that using it can say what is missing.
Value IsCallable(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.is(Kind::kCallable) || self.is(Kind::kUndefined));
}

Value IsNumber(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.is_number());
}

Value IsTrue(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.is(Kind::kBool) && self.integer() != 0);
}

Value IsFalse(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.is(Kind::kBool) && self.integer() == 0);
}

Value IsSequence(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(Length(self).has_value() && !self.is(Kind::kView));
}

Value IsIterableValue(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(IsIterable(self));
}

// value % divisor == remainder, for integers and floats.
bool Leaves(Interpreter& interpreter, const Value& value, int64_t divisor, int64_t remainder) {
  const Value rest = Arithmetic(interpreter, Operator::kModulo, value, Value::Int(divisor));
  return Equals(interpreter.budget(), rest, Value::Int(remainder));
}

Value IsOdd(Interpreter& interpreter, const Value& self, const Arguments&) {
  return Value::Bool(Leaves(interpreter, self, 2, 1));
}

Value IsEven(Interpreter& interpreter, const Value& self, const Arguments&) {
  return Value::Bool(Leaves(interpreter, self, 2, 0));
}

Value IsDivisibleBy(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("divisibleby", arguments, {"num"});
  const Value rest = Arithmetic(interpreter, Operator::kModulo, self, parameters.Required(0));
  return Value::Bool(Equals(interpreter.budget(), rest, Value::Int(0)));
}

template <Operator kOperator>
Value Compares(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("comparison", arguments, {"other"});
  return Value::Bool(CompareWith(interpreter, kOperator, self, parameters.Required(0)));
}

template <TextClass kClass>
Value IsTextOf(Interpreter& interpreter, const Value& self, const Arguments&) {
  return Value::Bool(IsOfClass(ToStr(interpreter.budget(), self), kClass));
}

Value IsSameAs(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("sameas", arguments, {"other"});
  const Value& other = parameters.Required(0);
  if (self.kind() != other.kind()) return Value::Bool(false);
  if (self.object() != nullptr || other.object() != nullptr) {
    return Value::Bool(self.object() == other.object());
  }
  return Value::Bool(Equals(interpreter.budget(), self, other));
}

Value IsFilter(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.is(Kind::kString) && FindFilter(self.text()) != nullptr);
}

Value IsTest(Interpreter&, const Value& self, const Arguments&) {
  return Value::Bool(self.is(Kind::kString) && FindTest(self.text()) != nullptr);
}

Value IsEscaped(Interpreter&, const Value&, const Arguments&) {
  return Value::Bool(false);
}

const std::map<std::string_view, Builtin>& Tests() {
  static const std::map<std::string_view, Builtin> tests = {
      {"defined", IsDefined},
      {"undefined", IsKind<Kind::kUndefined>},
      {"none", IsKind<Kind::kNone>},
      {"string", IsKind<Kind::kString>},
      {"mapping", IsKind<Kind::kDict>},
      {"boolean", IsKind<Kind::kBool>},
      {"integer", IsKind<Kind::kInt>},
      {"float", IsKind<Kind::kFloat>},
      {"callable", IsCallable},
      {"number", IsNumber},
      {"true", IsTrue},
      {"false", IsFalse},
      {"sequence", IsSequence},
      {"iterable", IsIterableValue},
      {"odd", IsOdd},
      {"even", IsEven},
      {"divisibleby", IsDivisibleBy},
      {"lower", IsTextOf<TextClass::kLower>},
      {"upper", IsTextOf<TextClass::kUpper>},
      {"sameas", IsSameAs},
      {"filter", IsFilter},
      {"test", IsTest},
      {"escaped", IsEscaped},
      {"in", Compares<Operator::kIn>},
      {"eq", Compares<Operator::kEqual>},
      {"==", Compares<Operator::kEqual>},
      {"equalto", Compares<Operator::kEqual>},
      {"ne", Compares<Operator::kNotEqual>},
      {"!=", Compares<Operator::kNotEqual>},
      {"lt", Compares<Operator::kLess>},
      {"<", Compares<Operator::kLess>},
      {"lessthan", Compares<Operator::kLess>},
      {"le", Compares<Operator::kLessEqual>},
      {"<=", Compares<Operator::kLessEqual>},
      {"gt", Compares<Operator::kGreater>},
      {">", Compares<Operator::kGreater>},
      {"greaterthan", Compares<Operator::kGreater>},
      {"ge", Compares<Operator::kGreaterEqual>},
      {">=", Compares<Operator::kGreaterEqual>},
  };
  return tests;
}

}  // namespace

Builtin FindTest(std::string_view name) {
  const auto found = Tests().find(name);
  return found == Tests().end() ? nullptr : found->second;
}

}  // namespace quire::text::jinja
