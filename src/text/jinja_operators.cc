// Arithmetic, comparison and slicing with Python's meaning. Integers have 64 bits: what does not
// fit is an error, never a wrapped number.
#include <cmath>
#include <limits>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr std::string_view SignOf(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    default:
      return "";
  }
}

[[noreturn]] void FailOverflow() {
  Fail("an integer does not fit 64 bits");
}

double FloorModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) == (b < 0) ? remainder : remainder + b;
}

double FloorDivide(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailOverflow();
  }
  return Value::Int(result);
}

Value DivideIntegers(Operator op, int64_t a, int64_t b) {
  if (b == 0) Fail("division by zero");
  if (op == Operator::kDivide) {
    return Value::Float(static_cast<double>(static_cast<long double>(a) / b));
  }
  if (b == -1) {  // INT64_MIN / -1 overflows, and % with it
    if (op == Operator::kModulo) return Value::Int(0);
    if (a == std::numeric_limits<int64_t>::min()) FailOverflow();
    return Value::Int(-a);
  }
  const int64_t quotient = a / b;
  const int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == Operator::kModulo) return Value::Int(adjust ? remainder + b : remainder);
  return Value::Int(adjust ? quotient - 1 : quotient);
}

Value IntegerArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      return DivideIntegers(op, a, b);
  }
  if (overflow) FailOverflow();
  return Value::Int(result);
}

Value FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower:
      if (a == 0 && b < 0) Fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b))
        Fail("complex numbers are not supported");
      if (std::isfinite(a) && std::isfinite(b) && !std::isfinite(std::pow(a, b))) {
        Fail("the power is too large for a float");
      }
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) Fail("float division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  return Value::Float(op == Operator::kModulo ? FloorModulo(a, b) : FloorDivide(a, b));
}

// A string, list or tuple `count` times over.
Value Repeat(Interpreter& interpreter, const Value& value, int64_t count) {
  Budget& budget = interpreter.budget();
  if (count < 0) count = 0;
  const bool is_string = value.is(Kind::kString);
  const auto size =
      static_cast<int64_t>(is_string ? value.text().size() : value.items().size() * sizeof(Value));
  if (size > 0 && count > budget.limits().max_memory_bytes / size) {
    count = budget.limits().max_memory_bytes / size + 1;  // more than fits, and no overflow
  }
  if (size == 0) count = 0;
  budget.CheckRoom(size * count);
  budget.StepBytes(size * count);
  if (is_string) {
    std::string out;
    out.reserve(static_cast<size_t>(size * count));
    for (int64_t i = 0; i < count; ++i) out += value.text();
    return interpreter.MakeString(std::move(out));
  }
  std::vector<Value> items;
  items.reserve(value.items().size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Kind::kList) ? interpreter.MakeList(std::move(items))
                               : interpreter.MakeTuple(std::move(items));
}

Value Join(Interpreter& interpreter, const Value& a, const Value& b) {
  Budget& budget = interpreter.budget();
  if (a.is(Kind::kString)) {
    Writer out(budget);
    out.Append(a.text());
    out.Append(b.text());
    return out.ToValue();
  }
  const size_t count = a.items().size() + b.items().size();
  budget.CheckRoom(static_cast<int64_t>(count * sizeof(Value)));
  budget.StepBytes(static_cast<int64_t>(count * sizeof(Value)));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? interpreter.MakeList(std::move(items))
                           : interpreter.MakeTuple(std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.is(Kind::kString) || value.is_sequence();
}

}  // namespace

Value Arithmetic(Interpreter& interpreter, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return IntegerArithmetic(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return FloatArithmetic(op, a.number(), b.number());
  if (op == Operator::kModulo && a.is(Kind::kString))
    return FormatPercent(interpreter, a.text(), b);
  if (a.is(Kind::kUndefined)) Fail("{}", a.undefined_hint());
  if (b.is(Kind::kUndefined)) Fail("{}", b.undefined_hint());
  if (op == Operator::kAdd && a.kind() == b.kind() && IsRepeatable(a)) {
    return Join(interpreter, a, b);
  }
  if (op == Operator::kMultiply && IsRepeatable(a) && b.is_integral()) {
    return Repeat(interpreter, a, b.integer());
  }
  if (op == Operator::kMultiply && IsRepeatable(b) && a.is_integral()) {
    return Repeat(interpreter, b, a.integer());
  }
  if (op == Operator::kAdd && a.is(Kind::kString)) {
    Fail("can only concatenate str (not \"{}\") to str", b.TypeName());
  }
  Fail("unsupported operand types for {}: '{}' and '{}'", SignOf(op), a.TypeName(), b.TypeName());
}

Value Negate(const Value& value) {
  if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
  if (value.is(Kind::kFloat)) return Value::Float(-value.number());
  if (!value.is_integral()) Fail("bad operand type for unary -: '{}'", value.TypeName());
  if (value.integer() == std::numeric_limits<int64_t>::min()) FailOverflow();
  return Value::Int(-value.integer());
}

Value Plus(const Value& value) {
  if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
  if (!value.is_number()) Fail("bad operand type for unary +: '{}'", value.TypeName());
  return value.is_integral() ? Value::Int(value.integer()) : value;
}

bool CompareWith(Interpreter& interpreter, Operator op, const Value& a, const Value& b) {
  Budget& budget = interpreter.budget();
  switch (op) {
    case Operator::kEqual:
      return Equals(budget, a, b);
    case Operator::kNotEqual:
      return !Equals(budget, a, b);
    case Operator::kIn:
      return Contains(budget, b, a);
    case Operator::kNotIn:
      return !Contains(budget, b, a);
    case Operator::kLess:
      return Compare(budget, a, b, SignOf(op)) < 0;
    case Operator::kLessEqual:
      return Compare(budget, a, b, SignOf(op)) <= 0;
    case Operator::kGreater:
      return Compare(budget, a, b, SignOf(op)) > 0;
    default:
      return Compare(budget, a, b, SignOf(op)) >= 0;
  }
}

namespace {

struct Span {
  int64_t first = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Python's slice.indices(length), and how many there are.
Span ResolveSlice(const SliceBounds& bounds, int64_t length) {
  const int64_t step = bounds.step.is(Kind::kNone) ? 1 : bounds.step.integer();
  if (step == 0) Fail("slice step cannot be zero");
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? length : length - 1;
  auto clamp = [&](const Value& bound, int64_t missing) {
    if (bound.is(Kind::kNone)) return missing;
    int64_t index = bound.integer();
    if (index < 0) index += length;  // length >= 0: no overflow
    return std::min(std::max(index, lowest), highest);
  };
  const int64_t start = clamp(bounds.start, step > 0 ? lowest : highest);
  const int64_t stop = clamp(bounds.stop, step > 0 ? highest : lowest);
  const RangeObject range(nullptr, start, stop, step);
  return {start, stop, step, range.size()};
}

Value SliceString(Interpreter& interpreter, const Value& object, const Span& span) {
  const std::string& text = object.text();
  interpreter.budget().StepBytes(static_cast<int64_t>(text.size()));
  if (span.count == 0) return interpreter.MakeString("");
  const bool is_ascii = object.code_points() == static_cast<int64_t>(text.size());
  auto offset_of = [&](int64_t index) {
    return is_ascii ? static_cast<size_t>(index) : ByteOffset(text, index);
  };
  if (span.step == 1) {
    const size_t begin = offset_of(span.first);
    const size_t size = is_ascii ? static_cast<size_t>(span.count)
                                 : ByteOffset(std::string_view(text).substr(begin), span.count);
    interpreter.budget().CheckRoom(static_cast<int64_t>(size));
    return interpreter.MakeString(text.substr(begin, size));
  }
  std::vector<size_t> offsets;  // of every code point
  interpreter.budget().CheckRoom(8 * static_cast<int64_t>(text.size()));
  for (size_t offset = 0; offset < text.size(); NextCodePoint(text, offset)) {
    offsets.push_back(offset);
  }
  std::string out;
  for (int64_t i = 0; i < span.count; ++i) {
    size_t offset = offsets[static_cast<size_t>(span.first + i * span.step)];
    const size_t begin = offset;
    NextCodePoint(text, offset);
    out.append(text, begin, offset - begin);
  }
  return interpreter.MakeString(std::move(out));
}

Value SliceRange(Interpreter& interpreter, const RangeObject& range, const Span& span) {
  int64_t step = 0;
  if (__builtin_mul_overflow(range.step, span.step, &step)) FailOverflow();
  return Value::Range(&interpreter.budget(), range.at(span.first), range.at(span.stop), step);
}

}  // namespace

Value Slice(Interpreter& interpreter, const Value& object, const SliceBounds& bounds) {
  if (object.is(Kind::kUndefined)) Fail("{}", object.undefined_hint());
  auto fits = [](const Value& bound) { return bound.is(Kind::kNone) || bound.is_integral(); };
  const bool sliceable =
      object.is_sequence() || object.is(Kind::kString) || object.is(Kind::kRange);
  if (!sliceable || !fits(bounds.start) || !fits(bounds.stop) || !fits(bounds.step)) {
    return interpreter.MakeUndefined(
        fmt::format("{} object cannot be sliced so", object.TypeName()));
  }
  const Span span = ResolveSlice(bounds, Length(object).value_or(0));
  if (object.is(Kind::kString)) return SliceString(interpreter, object, span);
  if (object.is(Kind::kRange)) return SliceRange(interpreter, object.range(), span);
  const auto bytes = span.count * static_cast<int64_t>(sizeof(Value));
  interpreter.budget().CheckRoom(bytes);
  interpreter.budget().StepBytes(bytes);
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(span.count));
  for (int64_t i = 0; i < span.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(span.first + i * span.step)]);
  }
  return object.is(Kind::kList) ? interpreter.MakeList(std::move(items))
                                : interpreter.MakeTuple(std::move(items));
}

}  // namespace quire::text::jinja
