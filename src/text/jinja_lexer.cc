#include "text/jinja_lexer.h"

#include <algorithm>
#include <optional>

#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr size_t kNotFound = std::string_view::npos;

[[noreturn]] void FailAt(int line, std::string message) {
  Raise({ErrorKind::kInvalid, std::move(message), line});
}

// \r\n and \r become \n, and one line break at the end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// The inside of a string literal with its escapes resolved as in Python.
class Unescaper {
 public:
  Unescaper(std::string_view raw, int line) : raw_(raw), line_(line) {}

  std::string Run() {
    while (at_ < raw_.size()) {
      if (raw_[at_] != '\\') {
        out_ += raw_[at_++];
      } else {
        ++at_;
        Escape();
      }
    }
    return std::move(out_);
  }

 private:
  void Escape() {
    if (at_ >= raw_.size()) FailAt(line_, "a string ends in a lone backslash");
    const char c = raw_[at_++];
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t i = kNames.find(c); i != kNotFound) {
      out_ += kMeanings[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      Hex(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int more = 0; more < 2 && at_ < raw_.size() && raw_[at_] >= '0' && raw_[at_] <= '7';
           ++more) {
        value = value * 8 + static_cast<char32_t>(raw_[at_++] - '0');
      }
      AppendCodePoint(out_, value);
    } else if (c == 'N') {
      FailAt(line_, "the escape \\N{...} is not supported, write the character itself");
    } else if (c != '\n') {
      out_ += '\\';  // not an escape: both stay
      if ((c & 0x80) == 0) {
        out_ += c;
      } else {
        NonAscii();
      }
    }
  }

  // Python resolves escapes in the ASCII form of the literal: a backslash before such a character
  // leaves that form behind.
  void NonAscii() {
    --at_;
    const auto c = static_cast<uint32_t>(NextCodePoint(raw_, at_));
    out_ += c < 0x100     ? fmt::format("x{:02x}", c)
            : c < 0x10000 ? fmt::format("u{:04x}", c)
                          : fmt::format("U{:08x}", c);
  }

  void Hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const auto digit = at_ < raw_.size() ? HexDigit(raw_[at_]) : std::nullopt;
      if (!digit) FailAt(line_, fmt::format("an escape needs {} hexadecimal digits", digits));
      value = (value << 4) | static_cast<char32_t>(*digit);
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      FailAt(line_, fmt::format("U+{:04X} is not a character", static_cast<uint32_t>(value)));
    }
    AppendCodePoint(out_, value);
  }

  std::string_view raw_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) Root();
    Push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, then the tag.
  void Root() {
    const size_t tag = FindTag(at_);
    if (tag == kNotFound) {
      Text(source_.substr(at_));
      at_ = source_.size();
      return;
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const size_t whole = text.size();
    if (sign == '-') {
      text = Strip(text, std::nullopt, Sides::kRight);
    } else if (sign != '+' && type != '{') {
      text = DropIndent(text);
    }
    const std::string_view dropped =
        std::string_view(source_).substr(at_ + text.size(), whole - text.size());
    Text(text);
    line_ += static_cast<int>(std::count(dropped.begin(), dropped.end(), '\n'));
    at_ = tag + 2;
    if (sign == '-' || sign == '+') ++at_;
    if (type == '#') return Comment();
    if (type == '%' && Raw()) return;
    Push(type == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    Inside(type == '{' ? '}' : '%');
  }

  size_t FindTag(size_t from) const {
    for (size_t at = source_.find('{', from); at != kNotFound; at = source_.find('{', at + 1)) {
      const char c = at + 1 < source_.size() ? source_[at + 1] : ' ';
      if (c == '{' || c == '%' || c == '#') return at;
    }
    return kNotFound;
  }

  // lstrip_blocks: a tag alone on its line so far takes the blanks before it along.
  std::string_view DropIndent(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    if (newline == kNotFound && !line_starting_) return text;
    const size_t line_start = newline == kNotFound ? 0 : newline + 1;
    const bool blank = Strip(text.substr(line_start), std::nullopt, Sides::kBoth).empty();
    return blank ? text.substr(0, line_start) : text;
  }

  void Text(std::string_view text) {
    if (!text.empty()) Push(TokenKind::kText, std::string(text));
    Advance(text);
  }

  // Counts the lines of source that was consumed.
  void Advance(std::string_view text) {
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  // Consumes what follows an end tag: with `-` all white space, without a sign one line break (not
  // behind output).
  enum class Trim { kNewline, kNothing };
  void AfterTag(char sign, Trim trim) {
    size_t end = at_;
    if (sign == '-') {
      while (end < source_.size()) {
        size_t next = end;
        if (!IsSpace(NextCodePoint(source_, next))) break;
        end = next;
      }
    } else if (sign != '+' && trim == Trim::kNewline && end < source_.size() &&
               source_[end] == '\n') {
      ++end;
    }
    Advance(std::string_view(source_).substr(at_, end - at_));
    at_ = end;
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == kNotFound) FailAt(line_, "a comment is not closed, expected #}");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    Advance(std::string_view(source_).substr(at_, end - at_));
    at_ = end + 2;
    AfterTag(sign, Trim::kNewline);
  }

  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!IsSpace(NextCodePoint(source_, next))) break;
      at = next;
    }
    return at;
  }

  // `word` with white space around it and the end of a block tag behind: the offset of that end tag
  // (of its sign where it has one).
  std::optional<size_t> TagNamed(size_t at, std::string_view word) const {
    at = SkipSpace(at);
    if (!std::string_view(source_).substr(at).starts_with(word)) return std::nullopt;
    at = SkipSpace(at + word.size());
    const std::string_view rest = std::string_view(source_).substr(at);
    if (rest.starts_with("%}") || rest.starts_with("-%}") || rest.starts_with("+%}")) return at;
    return std::nullopt;
  }

  void EndOfNamedTag(size_t at, Trim trim) {
    Advance(std::string_view(source_).substr(at_, at - at_));
    const char sign = source_[at];
    at_ = at + (sign == '%' ? 2 : 3);
    AfterTag(sign, trim);
  }

  // {% raw %} ... {% endraw %}, behind the opening {%.
  bool Raw() {
    const std::optional<size_t> open = TagNamed(at_, "raw");
    if (!open || source_[*open] == '+') return false;
    EndOfNamedTag(*open, Trim::kNothing);
    for (size_t tag = source_.find("{%", at_); tag != kNotFound;
         tag = source_.find("{%", tag + 1)) {
      size_t name = tag + 2;
      const char sign = name < source_.size() ? source_[name] : ' ';
      if (sign == '-' || sign == '+') ++name;
      const std::optional<size_t> close = TagNamed(name, "endraw");
      if (!close) continue;
      std::string_view text = std::string_view(source_).substr(at_, tag - at_);
      if (sign == '-') {
        text = Strip(text, std::nullopt, Sides::kRight);
      } else if (sign != '+') {
        text = DropIndent(text);
      }
      if (!text.empty()) Push(TokenKind::kText, std::string(text));
      EndOfNamedTag(*close, Trim::kNewline);
      return true;
    }
    FailAt(line_, "a raw block is not closed, expected {% endraw %}");
  }

  // The inside of {{ }} or {% %}; `closer` is } or %.
  void Inside(char closer) {
    brackets_.clear();
    for (;;) {
      SkipSpaceInside();
      if (at_ >= source_.size()) return;  // the parser misses the end
      if (brackets_.empty() && End(closer)) return;
      const char c = source_[at_];
      if (c == '"' || c == '\'') {
        String(c);
      } else if (c >= '0' && c <= '9') {
        Number();
      } else if (IsNameAt()) {
        Name();
      } else {
        Operator();
      }
    }
  }

  void SkipSpaceInside() {
    const size_t next = SkipSpace(at_);
    Advance(std::string_view(source_).substr(at_, next - at_));
    at_ = next;
  }

  bool End(char closer) {
    size_t at = at_;
    const char sign = source_[at];
    if (sign == '-' || (sign == '+' && closer == '%')) ++at;
    if (at + 1 >= source_.size() || source_[at] != closer || source_[at + 1] != '}') return false;
    Push(closer == '}' ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
    at_ = at + 2;
    AfterTag(sign, closer == '%' ? Trim::kNewline : Trim::kNothing);
    return true;
  }

  void String(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) FailAt(line_, "a string is not closed");
    const std::string_view raw = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    Push(TokenKind::kString, Unescaper(raw, line_).Run());
    Advance(raw);
    at_ = end + 1;
  }

  // Digits of `base` from `at` on, single underscores between them.
  size_t Digits(size_t at, int base) const {
    auto is_digit = [&](size_t i) {
      const auto digit = i < source_.size() ? HexDigit(source_[i]) : std::nullopt;
      return digit && *digit < base;
    };
    while (is_digit(at) || (at < source_.size() && source_[at] == '_' && is_digit(at + 1))) ++at;
    return at;
  }

  void Number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    size_t end = Digits(at_, 10);
    bool is_float = false;
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && source_[end + 1] >= '0' &&
          source_[end + 1] <= '9') {
        end = Digits(end + 1, 10);
        is_float = true;
      }
      size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        const size_t exponent_end = Digits(exponent, 10);
        if (exponent_end > exponent && source_[exponent] != '_') {
          end = exponent_end;
          is_float = true;
        }
      }
    }
    if (!is_float) return Integer(end);
    Token token{TokenKind::kNumber, line_, "", {}};
    token.number = Value::Float(ParseFloat(source_.substr(at_, end - at_)).value_or(0));
    tokens_.push_back(std::move(token));
    at_ = end;
  }

  void Integer(size_t end) {
    int base = 10;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
      const int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
      if (prefixed != 0 && Digits(at_ + 2, prefixed) > at_ + 2) {
        base = prefixed;
        end = Digits(at_ + 2, prefixed);
      }
    }
    const std::string digits = source_.substr(at_, end - at_);
    const std::optional<ParsedInt> number = ParseInt(digits, base);
    if (number && !number->fits) {
      FailAt(line_, fmt::format("the number {} does not fit 64 bits", digits));
    }
    if (!number || (base == 10 && digits.size() > 1 && digits[0] == '0' && number->value != 0)) {
      FailAt(line_, fmt::format("{} is not a number", digits));
    }
    Token token{TokenKind::kNumber, line_, "", Value::Int(number->value)};
    tokens_.push_back(std::move(token));
    at_ = end;
  }

  bool IsNameAt() const {
    size_t next = at_;
    return IsIdentifierStart(NextCodePoint(source_, next));
  }

  void Name() {
    size_t end = at_;
    for (size_t next = end; next < source_.size(); end = next) {
      if (!IsIdentifierPart(NextCodePoint(source_, next))) break;
    }
    Push(TokenKind::kName, source_.substr(at_, end - at_));
    at_ = end;
  }

  void Operator() {
    static constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingles = "+-/*%~[](){}<>=.:|,;";
    const std::string_view rest = std::string_view(source_).substr(at_);
    std::string_view found;
    for (std::string_view pair : kPairs) {
      if (rest.starts_with(pair)) found = pair;
    }
    if (found.empty() && kSingles.find(rest[0]) != kNotFound) found = rest.substr(0, 1);
    if (found.empty()) {
      size_t next = at_;
      NextCodePoint(source_, next);
      FailAt(line_, fmt::format("unexpected character '{}'", source_.substr(at_, next - at_)));
    }
    Balance(found[0]);
    Push(TokenKind::kOperator, std::string(found));
    at_ += found.size();
  }

  void Balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) FailAt(line_, fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c) {
      FailAt(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    }
    brackets_.pop_back();
  }

  void Push(TokenKind kind, std::string text) {
    tokens_.push_back(Token{kind, line_, std::move(text), {}});
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closers that are due
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace quire::text::jinja
