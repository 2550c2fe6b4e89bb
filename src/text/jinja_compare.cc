// Equality, order, membership and text forms of values.
#include <cmath>

#include "text/jinja_search.h"
#include "text/jinja_text.h"
#include "text/jinja_value.h"

namespace quire::text::jinja {
namespace {

// -1, 0, 1; nullopt where one is NaN. Exact also where a double cannot hold the integer.
std::optional<int> CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  }
  auto wide = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.integer())
                           : static_cast<long double>(v.number());
  };
  const long double x = wide(a);
  const long double y = wide(b);
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y;
}

bool DictsEqual(Budget& budget, const DictObject& a, const DictObject& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equals(budget, value, *other)) return false;
  }
  return true;
}

bool SequencesEqual(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equals(budget, a[i], b[i])) return false;
  }
  return true;
}

void AppendItems(Writer& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ");
    AppendRepr(out, items[i]);
  }
}

void AppendDict(Writer& out, const DictObject& dict) {
  out.Append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.Append(", ");
    first = false;
    AppendRepr(out, key);
    out.Append(": ");
    AppendRepr(out, value);
  }
  out.Append("}");
}

void AppendRange(Writer& out, const RangeObject& range) {
  out.Append(fmt::format("range({}, {}", range.start, range.stop));
  if (range.step != 1) out.Append(fmt::format(", {}", range.step));
  out.Append(")");
}

}  // namespace

bool Equals(Budget& budget, const Value& a, const Value& b) {
  budget.Step();
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  Nesting nesting(budget);
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.StepBytes(static_cast<int64_t>(a.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.object() == b.object() || SequencesEqual(budget, a.items(), b.items());
    case Kind::kDict:
      return a.object() == b.object() || DictsEqual(budget, a.dict(), b.dict());
    case Kind::kRange: {
      const RangeObject& x = a.range();
      const RangeObject& y = b.range();
      if (x.size() != y.size() || x.size() == 0) return x.size() == y.size();
      return x.start == y.start && (x.size() == 1 || x.step == y.step);
    }
    case Kind::kView:
      return SequencesEqual(budget, a.items(), b.items());
    default:
      return a.object() == b.object();
  }
}

int Compare(Budget& budget, const Value& a, const Value& b, std::string_view op) {
  budget.Step();
  if (a.is_number() && b.is_number()) {
    // Every comparison with NaN is false: neither "less" nor "greater or equal" may hold.
    const std::optional<int> order = CompareNumbers(a, b);
    return order ? *order : op.starts_with('<') ? 1 : -1;
  }
  if (a.is(Kind::kUndefined)) Fail("{}", a.undefined_hint());
  if (b.is(Kind::kUndefined)) Fail("{}", b.undefined_hint());
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    budget.StepBytes(static_cast<int64_t>(std::min(a.text().size(), b.text().size())));
    const int order = a.text().compare(b.text());  // UTF-8 sorts as its code points do
    return order < 0 ? -1 : order > 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    Nesting nesting(budget);
    const size_t common = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < common; ++i) {
      if (Equals(budget, a.items()[i], b.items()[i])) continue;
      return Compare(budget, a.items()[i], b.items()[i], op);
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size();
  }
  Fail("'{}' not supported between instances of '{}' and '{}'", op, a.TypeName(), b.TypeName());
}

bool Contains(Budget& budget, const Value& container, const Value& item) {
  if (container.is(Kind::kString)) {
    if (item.is(Kind::kUndefined)) {
      Fail("'in <string>' requires string as left operand, but {}", item.undefined_hint());
    }
    if (!item.is(Kind::kString)) {
      Fail("'in <string>' requires string as left operand, not {}", item.TypeName());
    }
    budget.StepBytes(static_cast<int64_t>(container.text().size()));
    return Find(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) return container.dict().Find(item) != nullptr;
  if (container.is(Kind::kRange) && item.is_integral()) {
    const RangeObject& range = container.range();
    if (range.size() == 0) return false;
    const __int128 offset = static_cast<__int128>(item.integer()) - range.start;
    return offset % range.step == 0 && offset / range.step >= 0 &&
           offset / range.step < range.size();
  }
  if (!IsIterable(container)) Fail("argument of type '{}' is not iterable", container.TypeName());
  Cursor cursor(budget, container);
  while (std::optional<Value> candidate = cursor.Next()) {
    if (Equals(budget, *candidate, item)) return true;
  }
  return false;
}

void AppendStr(Writer& out, const Value& value) {
  if (value.is(Kind::kString)) {
    out.Append(value.text());
  } else if (!value.is(Kind::kUndefined)) {
    AppendRepr(out, value);
  }
}

void AppendRepr(Writer& out, const Value& value) {
  out.budget().Step();
  Nesting nesting(out.budget());
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.Append("Undefined");
    case Kind::kNone:
      return out.Append("None");
    case Kind::kBool:
      return out.Append(value.integer() != 0 ? "True" : "False");
    case Kind::kInt:
      return out.Append(std::to_string(value.integer()));
    case Kind::kFloat:
      return out.Append(FloatRepr(value.number()));
    case Kind::kString:
      out.budget().CheckRoom(4 * static_cast<int64_t>(value.text().size()));
      return out.Append(StringRepr(value.text()));
    case Kind::kList:
      out.Append("[");
      AppendItems(out, value.items());
      return out.Append("]");
    case Kind::kTuple:
      out.Append("(");
      AppendItems(out, value.items());
      return out.Append(value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return AppendDict(out, value.dict());
    case Kind::kNamespace:
      out.Append("<Namespace ");
      AppendDict(out, value.dict());
      return out.Append(">");
    case Kind::kRange:
      return AppendRange(out, value.range());
    case Kind::kView:
      out.Append(value.TypeName());
      out.Append("([");
      AppendItems(out, value.items());
      return out.Append("])");
    case Kind::kIterator:
      return out.Append("<generator object>");
    case Kind::kCallable:
      return out.Append(value.callable().Repr());
  }
}

std::string ToStr(Budget& budget, const Value& value) {
  Writer out(budget);
  AppendStr(out, value);
  return out.Take();
}

}  // namespace quire::text::jinja
