#include "text/jinja_filters.h"

#include <cmath>

#include "text/jinja_format.h"
#include "text/jinja_parameters.h"
#include "text/jinja_string_methods.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

// A method of strings as a filter of anything: applied to its str().
Value OnText(Interpreter& interpreter, const Value& self, std::string_view method,
             const Arguments& arguments) {
  const Value text =
      self.is(Kind::kString) ? self : interpreter.MakeString(ToStr(interpreter.budget(), self));
  return FindStringMethod(method)(interpreter, text, arguments);
}

Value Upper(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return OnText(interpreter, self, "upper", arguments);
}
Value Lower(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return OnText(interpreter, self, "lower", arguments);
}
Value Capitalize(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return OnText(interpreter, self, "capitalize", arguments);
}
Value Trim(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return OnText(interpreter, self, "strip", arguments);
}

Value Center(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("center", arguments, {"width"});
  return OnText(interpreter, self, "center", Arguments{{parameters.Or(0, Value::Int(80))}, {}});
}

// Jinja's words begin after white space and any of -({[<, unlike those of str.title().
Value Title(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("title", arguments, {});
  const std::string text = ToStr(interpreter.budget(), self);
  interpreter.budget().StepBytes(8 * static_cast<int64_t>(text.size()));
  interpreter.budget().CheckRoom(8 * static_cast<int64_t>(text.size()));
  auto splits = [](char32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t word = at;
    while (at < text.size() && splits(static_cast<unsigned char>(text[at]))) ++at;
    if (at == word) NextCodePoint(text, at);
    const std::string_view first = std::string_view(text).substr(word, at - word);
    const bool is_separator = splits(static_cast<unsigned char>(first[0]));
    out += is_separator ? std::string(first) : ToCase(first, LetterCase::kUpper);
    if (is_separator) continue;
    word = at;
    for (size_t next = at; next < text.size(); at = next) {
      if (splits(NextCodePoint(text, next))) break;
      if (next == text.size()) {
        at = next;
        break;
      }
    }
    out += ToCase(std::string_view(text).substr(word, at - word), LetterCase::kLower);
  }
  return interpreter.MakeString(std::move(out));
}

Value Replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"});
  Budget& budget = interpreter.budget();
  const std::string from = ToStr(budget, parameters.Required(0));
  const std::string to = ToStr(budget, parameters.Required(1));
  const int64_t count = parameters.IsSet(2) ? parameters.Int(2) : -1;
  return ReplaceText(interpreter, ToStr(budget, self), {from, to, count});
}

Value ToStringFilter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("string", arguments, {});
  if (self.is(Kind::kString)) return self;
  return interpreter.MakeString(ToStr(interpreter.budget(), self));
}

Value Escape(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("escape", arguments, {});
  Writer out(interpreter.budget());
  const std::string text = ToStr(interpreter.budget(), self);
  for (size_t at = 0; at < text.size();) {
    const size_t special = std::min(text.find_first_of("&<>'\"", at), text.size());
    out.Append(std::string_view(text).substr(at, special - at));
    at = special + 1;
    if (special == text.size()) break;
    const char c = text[special];
    out.Append(c == '&'   ? "&amp;"
               : c == '<' ? "&lt;"
               : c == '>' ? "&gt;"
               : c == '"' ? "&#34;"
                          : "&#39;");
  }
  return out.ToValue();
}

Value Indent(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("indent", arguments, {"width", "first", "blank"});
  if (self.is(Kind::kUndefined)) Fail("{}", self.undefined_hint());
  if (!self.is(Kind::kString)) Fail("indent needs a string, not {}", self.TypeName());
  std::string indent(4, ' ');
  if (parameters.Has(0) && parameters.Required(0).is(Kind::kString)) {
    indent = parameters.Text(0);
  } else if (parameters.Has(0)) {
    const int64_t width = std::max<int64_t>(parameters.Int(0), 0);
    interpreter.budget().CheckRoom(width);
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank = parameters.IsTrue(2);
  interpreter.budget().CheckRoom(17 * static_cast<int64_t>(self.text().size()));
  const std::string text = self.text() + "\n";  // so that an empty last line counts
  Writer out(interpreter.budget());
  bool first = true;
  for (std::string_view line : SplitLines(text, LineEnds::kDrop)) {
    if (!first) out.Append("\n");
    if (first ? parameters.IsTrue(1) : (blank || !line.empty())) out.Append(indent);
    out.Append(line);
    first = false;
  }
  return out.ToValue();
}

Value Format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const std::string format = ToStr(interpreter.budget(), self);
  if (arguments.named.empty()) {
    return FormatPercent(interpreter, format, interpreter.MakeTuple(arguments.positional));
  }
  if (!arguments.positional.empty()) Fail("format takes positional or named arguments, not both");
  Value mapping = Value::Dict(&interpreter.budget());
  for (const auto& [name, value] : arguments.named) {
    mapping.dict().Set(interpreter.MakeString(name), value);
  }
  return FormatPercent(interpreter, format, mapping);
}

Value Truncate(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::string end = parameters.Has(2) ? parameters.Text(2) : std::string(3, '.');
  const int64_t length = parameters.IntOr(0, 255);
  const int64_t leeway = parameters.IsSet(3) ? parameters.Int(3) : 5;
  const int64_t kept = length - CountCodePoints(end);
  if (kept < 0 || leeway < 0)
    Fail("truncate needs a length above its end's, and no negative leeway");
  const std::optional<int64_t> size = Length(self);
  if (!size) Fail("object of type '{}' has no len()", self.TypeName());
  if (*size - leeway <= length) return self;
  if (!self.is(Kind::kString)) Fail("truncate needs a string, not {}", self.TypeName());
  const std::string& text = self.text();
  std::string out = text.substr(0, ByteOffset(text, kept));
  if (!parameters.IsTrue(1)) out = out.substr(0, out.rfind(' '));
  return interpreter.MakeString(out + end);
}

Value WordCount(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("wordcount", arguments, {});
  const std::string text = ToStr(interpreter.budget(), self);
  interpreter.budget().StepBytes(4 * static_cast<int64_t>(text.size()));
  int64_t words = 0;
  bool in_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, offset);
    const bool part = IsIdentifierPart(c);
    words += part && !in_word ? 1 : 0;
    in_word = part;
  }
  return Value::Int(words);
}

Value Default(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("default", arguments, {"default_value", "boolean"});
  const bool missing = self.is(Kind::kUndefined) || (parameters.IsTrue(1) && !IsTruthy(self));
  return missing ? parameters.Or(0, interpreter.MakeString("")) : self;
}

Value ToInt(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("int", arguments, {"default", "base"});
  if (self.is(Kind::kUndefined)) Fail("{}", self.undefined_hint());
  if (self.is_integral()) return Value::Int(self.integer());
  std::optional<double> number;
  if (self.is(Kind::kFloat)) number = self.number();
  if (self.is(Kind::kString)) {
    const int64_t base = parameters.IntOr(1, 10);
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const auto parsed = ParseInt(self.text(), static_cast<int>(base))) {
        if (!parsed->fits) Fail("the number does not fit 64 bits");
        return Value::Int(parsed->value);
      }
    }
    number = ParseFloat(self.text());
  }
  if (!number || !std::isfinite(*number)) return parameters.Or(0, Value::Int(0));
  if (!(std::fabs(*number) < 9223372036854775807.0)) Fail("the number does not fit 64 bits");
  return Value::Int(static_cast<int64_t>(*number));
}

Value ToFloat(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("float", arguments, {"default"});
  if (self.is(Kind::kUndefined)) Fail("{}", self.undefined_hint());
  if (self.is_number()) return Value::Float(self.number());
  if (self.is(Kind::kString)) {
    if (const std::optional<double> value = ParseFloat(self.text())) return Value::Float(*value);
  }
  return parameters.Or(0, Value::Float(0));
}

Value Abs(Interpreter&, const Value& self, const Arguments& arguments) {
  Parameters("abs", arguments, {});
  if (self.is(Kind::kUndefined)) Fail("{}", self.undefined_hint());
  if (self.is(Kind::kFloat)) return Value::Float(std::fabs(self.number()));
  if (!self.is_integral()) Fail("abs needs a number, not {}", self.TypeName());
  return self.integer() < 0 ? Negate(self) : Value::Int(self.integer());
}

// round(value, digits) as Python: correctly rounded, ties to even on what the digits really are.
double RoundFloat(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(digits));
  return ParseFloat(text).value_or(value);
}

int64_t RoundInteger(int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  int64_t unit = 1;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  const __int128 below = static_cast<__int128>(value) - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (below / unit) % 2 != 0);
  const __int128 rounded = up ? below + unit : below;
  if (rounded > INT64_MAX || rounded < INT64_MIN) Fail("an integer does not fit 64 bits");
  return static_cast<int64_t>(rounded);
}

Value Round(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("round", arguments, {"precision", "method"});
  const std::string method = parameters.Has(1) ? parameters.Text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail("round's method must be common, ceil or floor");
  }
  if (self.is(Kind::kUndefined)) Fail("{}", self.undefined_hint());
  if (!self.is_number()) Fail("round needs a number, not {}", self.TypeName());
  const int64_t digits = parameters.IntOr(0, 0);
  if (method == "common") {
    if (self.is_integral()) return Value::Int(RoundInteger(self.integer(), digits));
    return Value::Float(RoundFloat(self.number(), digits));
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.number() * unit;
  if (!std::isfinite(scaled)) Fail("the number cannot be rounded");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value ToJson(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("tojson", arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  if (parameters.IsTrue(0)) style.non_ascii = NonAscii::kEscaped;
  if (parameters.IsTrue(3)) style.key_order = KeyOrder::kSorted;
  if (parameters.IsSet(1)) {
    if (parameters.Required(1).is(Kind::kString)) {
      style.indent = parameters.Text(1);
    } else {
      const int64_t width = std::max<int64_t>(parameters.Int(1), 0);
      interpreter.budget().CheckRoom(width);
      style.indent.emplace(static_cast<size_t>(width), ' ');
    }
    style.item_separator.assign(1, ',');
  }
  if (parameters.IsSet(2)) {
    const std::vector<Value> separators = ToVector(interpreter.budget(), parameters.Required(2));
    if (separators.size() != 2 || !separators[0].is(Kind::kString) ||
        !separators[1].is(Kind::kString)) {
      Fail("tojson's separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  Writer out(interpreter.budget());
  AppendJson(out, self, style);
  return out.ToValue();
}

Value AttributeOf(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("attr", arguments, {"name"});
  const std::string& name = parameters.Text(0);
  if (self.is(Kind::kDict) && FindMethod(self, name) == nullptr) {
    return interpreter.MakeUndefined(fmt::format("'dict object' has no attribute '{}'", name));
  }
  return interpreter.Attribute(self, name);
}

const FilterTable& Filters() {
  static const FilterTable table = [] {
    FilterTable filters;
    AddValueFilters(filters);
    AddSequenceFilters(filters);
    return filters;
  }();
  return table;
}

}  // namespace

void AddValueFilters(FilterTable& table) {
  table.insert({
      {"upper", Upper},
      {"lower", Lower},
      {"capitalize", Capitalize},
      {"title", Title},
      {"trim", Trim},
      {"center", Center},
      {"replace", Replace},
      {"string", ToStringFilter},
      {"safe", ToStringFilter},
      {"e", Escape},
      {"escape", Escape},
      {"forceescape", Escape},
      {"indent", Indent},
      {"format", Format},
      {"truncate", Truncate},
      {"wordcount", WordCount},
      {"default", Default},
      {"d", Default},
      {"int", ToInt},
      {"float", ToFloat},
      {"abs", Abs},
      {"round", Round},
      {"tojson", ToJson},
      {"attr", AttributeOf},
  });
}

Builtin FindFilter(std::string_view name) {
  const auto found = Filters().find(name);
  return found == Filters().end() ? nullptr : found->second;
}

}  // namespace quire::text::jinja
