#include "text/jinja_format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_parameters.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr int kMaxWidth = 10'000;  // of a padded field and of a float's digits

// [[fill]align][sign][#][0][width][,][.precision][type], the common part of both notations.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ = ; 0: by type
  char sign = '-';
  bool alternate = false;
  bool commas = false;
  int width = 0;
  int precision = -1;  // -1: none
  char type = 0;       // 0: by value
};

void AppendPadded(Writer& out, const Spec& spec, std::string_view sign, std::string_view body) {
  const int64_t missing = spec.width - CountCodePoints(sign) - CountCodePoints(body);
  int64_t before = 0;
  int64_t inside = 0;
  int64_t after = 0;
  if (missing > 0) {
    if (spec.align == '<') {
      after = missing;
    } else if (spec.align == '^') {
      before = missing / 2;
      after = missing - before;
    } else if (spec.align == '=') {
      inside = missing;
    } else {
      before = missing;
    }
  }
  for (; before > 0; --before) out.Append(spec.fill);
  out.Append(sign);
  for (; inside > 0; --inside) out.Append(spec.fill);
  out.Append(body);
  for (; after > 0; --after) out.Append(spec.fill);
}

std::string InsertCommas(std::string digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string SignText(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

void AppendInteger(Writer& out, Spec spec, int64_t value) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char lower = static_cast<char>(spec.type | 0x20);
  const int base = lower == 'x' ? 16 : lower == 'o' ? 8 : lower == 'b' ? 2 : 10;
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  std::string digits(buffer, end.ptr);
  std::string sign = SignText(value < 0, spec);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  if (spec.type == 'X') digits = ToCase(digits, LetterCase::kUpper);
  if (spec.commas) digits = InsertCommas(std::move(digits));
  if (spec.precision > static_cast<int>(digits.size())) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  AppendPadded(out, spec, sign, digits);
}

void AppendFloat(Writer& out, const Spec& spec, double value) {
  std::string body;
  const char lower = static_cast<char>(spec.type | 0x20);
  if (std::isnan(value) || std::isinf(value)) {
    body = std::isnan(value) ? "nan" : "inf";
  } else if (spec.type == 0 && spec.precision < 0) {
    body = FloatRepr(std::fabs(value));
  } else {
    const char conversion = spec.type == 0 || lower == 'n' ? 'g'
                            : spec.type == '%'             ? 'f'
                                                           : spec.type;
    const char pattern[] = {'%', spec.alternate ? '#' : '.', '.', '*', conversion, 0};
    const char plain[] = {'%', '.', '*', conversion, 0};
    const double shown = std::fabs(value) * (spec.type == '%' ? 100 : 1);
    std::string buffer(400 + static_cast<size_t>(std::max(spec.precision, 6)), '\0');
    const int length = std::snprintf(buffer.data(), buffer.size(), spec.alternate ? pattern : plain,
                                     spec.precision < 0 ? 6 : spec.precision, shown);
    body = buffer.substr(0, static_cast<size_t>(length));
    if (spec.type == '%') body += '%';
    if (spec.type == 0 && body.find_first_of(".en") == std::string::npos) body += ".0";
  }
  if (spec.commas) body = InsertCommas(std::move(body));
  AppendPadded(out, spec, SignText(std::signbit(value) && !std::isnan(value), spec), body);
}

void AppendText(Writer& out, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, spec.precision));
  AppendPadded(out, spec, "", text);
}

int ParseCount(std::string_view text, size_t& at) {
  int value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > kMaxWidth) Fail("a format's width or precision is at most {}", kMaxWidth);
  }
  return value;
}

// --- format % values

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, std::string_view format, const Value& values)
      : interpreter_(interpreter), out_(interpreter.budget()), format_(format), values_(values) {}

  Value Run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.Append(format_.substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) Directive();
    }
    // Whatever can be subscripted might serve named directives and need not be used up.
    const bool may_be_named = values_.is(Kind::kDict) || values_.is(Kind::kList) ||
                              values_.is(Kind::kRange) || values_.is(Kind::kUndefined);
    const bool all_used = may_be_named || used_mapping_ ||
                          (values_.is(Kind::kTuple) ? next_ >= values_.items().size() : next_ > 0);
    if (!all_used) Fail("not all arguments were converted by the format");
    return out_.ToValue();
  }

 private:
  Value NextValue() {
    if (mapped_) return *std::exchange(mapped_, std::nullopt);
    const size_t i = next_++;
    if (values_.is(Kind::kTuple) && i < values_.items().size()) return values_.items()[i];
    if (!values_.is(Kind::kTuple) && i == 0) return values_;
    Fail("the format needs more arguments than it was given");
  }

  int Count() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      const int64_t count = ToInteger(NextValue(), "a format's width");
      if (count > kMaxWidth || count < -kMaxWidth) {
        Fail("a format's width or precision is at most {}", kMaxWidth);
      }
      return static_cast<int>(count);
    }
    return ParseCount(format_, at_);
  }

  void Directive() {
    ++at_;
    if (at_ < format_.size() && format_[at_] == '(') MappingKey();
    Spec spec;
    bool zero = false;
    for (; at_ < format_.size() &&
           std::string_view("-+ #0").find(format_[at_]) != std::string_view::npos;
         ++at_) {
      const char flag = format_[at_];
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign == '-')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') zero = true;
    }
    spec.width = Count();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = std::max(Count(), 0);
    }
    while (at_ < format_.size() &&
           std::string_view("hlL").find(format_[at_]) != std::string_view::npos)
      ++at_;
    if (at_ >= format_.size()) Fail("the format ends within a directive");
    spec.type = format_[at_++];
    if (zero && spec.align != '<' &&
        std::string_view("srac").find(spec.type) == std::string_view::npos) {
      spec.align = '=';
      spec.fill = "0";
    }
    Convert(spec);
  }

  void MappingKey() {
    const size_t close = format_.find(')', at_);
    if (close == std::string_view::npos) Fail("the format's key is not closed");
    if (!values_.is(Kind::kDict)) Fail("the format needs a mapping");
    const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
    const Value* found = values_.dict().Find(key);
    if (found == nullptr) Fail("the format's key '{}' is missing", key);
    mapped_ = *found;
    used_mapping_ = true;
    at_ = close + 1;
  }

  void Convert(Spec spec) {
    if (spec.type == '%') return out_.Append("%");
    const Value value = NextValue();
    switch (spec.type) {
      case 's':
        return AppendText(out_, spec, ToStr(interpreter_.budget(), value));
      case 'r':
      case 'a': {
        Writer repr(interpreter_.budget());
        AppendRepr(repr, value);
        return AppendText(out_, spec, repr.text());
      }
      case 'c':
        return AppendText(out_, spec, Character(value));
      case 'd':
      case 'i':
      case 'u':
        spec.type = 'd';
        return AppendInteger(out_, spec, Whole(value));
      case 'x':
      case 'X':
      case 'o':
        return AppendInteger(out_, spec, ToInteger(value, "the value of %x"));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
        if (!value.is_number()) Fail("%{} needs a number, not {}", spec.type, value.TypeName());
        return AppendFloat(out_, spec, value.number());
      default:
        Fail("there is no format directive %{}", spec.type);
    }
  }

  static int64_t Whole(const Value& value) {
    if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
    if (value.is_integral()) return value.integer();
    if (!value.is(Kind::kFloat)) Fail("%d needs a number, not {}", value.TypeName());
    if (!(std::fabs(value.number()) < 9.2e18)) Fail("the float does not fit an integer");
    return static_cast<int64_t>(value.number());
  }

  static std::string Character(const Value& value) {
    if (value.is(Kind::kString) && value.code_points() == 1) return value.text();
    const int64_t code = ToInteger(value, "the value of %c");
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      Fail("{} is not a character", code);
    }
    std::string out;
    AppendCodePoint(out, static_cast<char32_t>(code));
    return out;
  }

  Interpreter& interpreter_;
  Writer out_;
  std::string_view format_;
  const Value& values_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool used_mapping_ = false;
  std::optional<Value> mapped_;
};

// --- format.format(...)

Spec ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  size_t second = 0;
  if (!text.empty()) NextCodePoint(text, second);
  if (second > 0 && is_align(second)) {
    spec.fill = std::string(text.substr(0, second));
    spec.align = text[second];
    at = second + 1;
  } else if (is_align(0)) {
    spec.align = text[0];
    at = 1;
  }
  auto take = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  if (take('+')) spec.sign = '+';
  if (take(' ')) spec.sign = ' ';
  if (take('-')) spec.sign = '-';
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) {
    spec.align = '=';
    spec.fill = "0";
  }
  spec.width = ParseCount(text, at);
  spec.commas = take(',');
  if (take('.')) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9')
      Fail("the format misses its precision");
    spec.precision = ParseCount(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) Fail("'{}' is not a format", text);
  return spec;
}

void AppendFormatted(Interpreter& interpreter, Writer& out, const Value& value,
                     std::string_view format) {
  if (format.empty()) return AppendStr(out, value);
  Spec spec = ParseSpec(format);
  const bool is_float_type = std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kFloat) || (value.is_integral() && spec.type != 0 && is_float_type)) {
    if (spec.type != 0 && !is_float_type) Fail("'{}' is no format for a float", spec.type);
    return AppendFloat(out, spec, value.number());
  }
  if (value.is_integral() && !(value.is(Kind::kBool) && spec.type == 0)) {
    if (spec.type != 0 && std::string_view("dxXob").find(spec.type) == std::string_view::npos) {
      Fail("'{}' is no format for an integer", spec.type);
    }
    if (spec.precision >= 0) Fail("an integer's format takes no precision");
    return AppendInteger(out, spec, value.integer());
  }
  if (!value.is(Kind::kString) && !value.is(Kind::kBool)) {
    Fail("a format is not supported for {}", value.TypeName());
  }
  if (spec.type != 0 && spec.type != 's') Fail("'{}' is no format for a string", spec.type);
  if (spec.align == '=' && spec.fill != "0") Fail("'=' is no alignment for a string");
  if (spec.align == 0 || spec.align == '=') spec.align = '<';
  AppendText(out, spec, ToStr(interpreter.budget(), value));
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  // `levels`: how deep fields may still nest in formats.
  void Run(Writer& out, std::string_view format, int levels) {
    if (levels == 0) Fail("the format nests too deeply");
    for (size_t at = 0; at < format.size();) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      out.Append(format.substr(at, brace - at));
      if (brace == format.size()) return;
      if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
        out.Append(format.substr(brace, 1));
        at = brace + 2;
        continue;
      }
      if (format[brace] == '}') Fail("a single '}}' in the format");
      const size_t close = FieldEnd(format, brace + 1);
      Field(out, format.substr(brace + 1, close - brace - 1), levels);
      at = close + 1;
    }
  }

 private:
  static size_t FieldEnd(std::string_view format, size_t at) {
    int depth = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++depth;
      if (format[at] == '}' && --depth == 0) return at;
    }
    Fail("a field of the format is not closed");
  }

  void Field(Writer& out, std::string_view field, int levels) {
    const size_t name_end = std::min(field.find_first_of(":!"), field.size());
    Value value = Resolve(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        Fail("a conversion is one letter");
      if (rest[1] != 's' && rest[1] != 'r') Fail("the conversion must be !s or !r");
      Writer text(interpreter_.budget());
      rest[1] == 's' ? AppendStr(text, value) : AppendRepr(text, value);
      value = text.ToValue();
      rest.remove_prefix(2);
    }
    if (!rest.empty()) rest.remove_prefix(1);
    Writer spec(interpreter_.budget());
    Run(spec, rest, levels - 1);
    AppendFormatted(interpreter_, out, value, spec.text());
  }

  Value Resolve(std::string_view name) {
    const size_t head_end = std::min(name.find_first_of(".["), name.size());
    Value value = Head(name.substr(0, head_end));
    for (size_t at = head_end; at < name.size();) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        value = interpreter_.Attribute(value, name.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const size_t end = name[at] == '[' ? name.find(']', at) : std::string_view::npos;
        if (end == std::string_view::npos) Fail("a field of the format is malformed");
        const std::string key(name.substr(at + 1, end - at - 1));
        const std::optional<int64_t> index = Digits(key);
        value = interpreter_.Item(value, index ? Value::Int(*index) : interpreter_.MakeString(key));
        at = end + 1;
      }
    }
    return value;
  }

  static std::optional<int64_t> Digits(std::string_view text) {
    if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos) {
      return std::nullopt;
    }
    return ParseInt(text, 10).value_or(ParsedInt{}).value;
  }

  Value Head(std::string_view head) {
    const std::optional<int64_t> index = head.empty() ? next_++ : Digits(head);
    if (index) {
      if (static_cast<size_t>(*index) >= arguments_.positional.size()) {
        Fail("the format has no argument {}", *index);
      }
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [name, value] : arguments_.named) {
      if (name == head) return value;
    }
    Fail("the format has no argument '{}'", head);
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  int64_t next_ = 0;
};

}  // namespace

Value FormatPercent(Interpreter& interpreter, std::string_view format, const Value& values) {
  return PercentFormatter(interpreter, format, values).Run();
}

Value FormatBraces(Interpreter& interpreter, std::string_view format, const Arguments& arguments) {
  Writer out(interpreter.budget());
  BraceFormatter(interpreter, arguments).Run(out, format, 3);
  return out.ToValue();
}

}  // namespace quire::text::jinja
