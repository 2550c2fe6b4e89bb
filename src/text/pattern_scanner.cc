#include "text/pattern_scanner.h"

#include "text/grammar.h"
#include "text/utf8.h"

namespace quire::text {
namespace {

constexpr uint32_t kCountMax = 1'000'000'000;

CharacterSet Digits() {
  return {'0', '9'};
}

CharacterSet WordCharacters() {
  CharacterSet set = Digits();
  set.Add('a', 'z');
  set.Add('A', 'Z');
  set.Add('_');
  return set;
}

CharacterSet Spaces() {
  CharacterSet set(0x09, 0x0d);
  set.Add(' ');
  return set;
}

std::optional<uint32_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

bool IsLetterOrDigit(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// The single character of a set that has one.
std::optional<char32_t> Only(const CharacterSet& set) {
  if (set.ranges().size() != 1 || set.ranges()[0].low != set.ranges()[0].high) return std::nullopt;
  return set.ranges()[0].low;
}

}  // namespace

Status CheckGrammarText(std::string_view text, std::string_view what) {
  if (text.size() > Grammar::kTextBytesMax) {
    return MakeError(ErrorKind::kExhausted, "{} has {} bytes, more than the {} allowed.", what,
                     text.size(), Grammar::kTextBytesMax);
  }
  if (!IsValidUtf8(text)) {
    return MakeError(ErrorKind::kInvalid, "{} is not well-formed UTF-8.", what);
  }
  return Ok{};
}

bool PatternScanner::Skip(std::string_view token) {
  if (!Sees(token)) return false;
  at_ += token.size();
  return true;
}

char32_t PatternScanner::NextCharacter() {
  return text::NextCharacter(text_, at_);
}

Error PatternScanner::Malformed(std::string_view problem) const {
  return MakeError(ErrorKind::kInvalid, "{} is malformed at byte {}: {}.", what_, at_, problem);
}

Error PatternScanner::Unsupported(std::string_view feature) const {
  return MakeError(ErrorKind::kUnsupported, "{} has {} at byte {}, which is not supported.", what_,
                   feature, at_);
}

Result<CharacterSet> PatternScanner::ReadEscape() {
  if (done()) return Malformed("it ends in a backslash");
  const char32_t c = NextCharacter();
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Complement();
    case 'w':
      return WordCharacters();
    case 'W':
      return WordCharacters().Complement();
    case 's':
      return Spaces();
    case 'S':
      return Spaces().Complement();
    case 'n':
      return CharacterSet('\n', '\n');
    case 'r':
      return CharacterSet('\r', '\r');
    case 't':
      return CharacterSet('\t', '\t');
    case 'f':
      return CharacterSet('\f', '\f');
    case 'v':
      return CharacterSet('\v', '\v');
    case 'x':
      return ReadHex(2, 2);
    case 'u':
      return ReadHex(4, 4);
    case 'U':
      return ReadHex(8, 8);
    case '0':
      if (!done() && IsLetterOrDigit(static_cast<uint8_t>(text_[at_]))) break;
      return CharacterSet(0, 0);
    case 'b':
    case 'B':
    case 'A':
    case 'z':
    case 'Z':
      return Unsupported("an assertion (\\b, \\B, \\A, \\z)");
    case 'p':
    case 'P':
      return Unsupported("a Unicode property (\\p)");
    default:
      break;
  }
  if (c >= '0' && c <= '9') return Unsupported("a backreference or an octal escape");
  if (IsLetterOrDigit(c)) return Malformed("an unknown escape");
  return CharacterSet(c, c);
}

Result<CharacterSet> PatternScanner::ReadHex(size_t digits_min, size_t digits_max) {
  const bool braces = digits_max <= 4 && Skip("{");
  if (braces) {
    digits_min = 1;
    digits_max = 6;
  }
  char32_t value = 0;
  size_t digits = 0;
  while (digits < digits_max && !done()) {
    const auto digit = HexDigit(text_[at_]);
    if (!digit) break;
    value = value * 16 + *digit;
    ++digits;
    ++at_;
  }
  if (digits < digits_min || (braces && !Skip("}"))) return Malformed("too few hexadecimal digits");
  const CharacterSet set(value, value);
  if (set.empty() || value > 0x10ffff) return Malformed("no such character");
  return set;
}

Result<CharacterSet> PatternScanner::ReadClass() {
  const bool negated = Skip("^");
  CharacterSet set;
  for (bool first = true; first || !Sees("]"); first = false) {
    if (done()) return Malformed("a character class has no end");
    if (Sees("[:") || Sees("&&") || Sees("--")) return Unsupported("an operation on classes");
    CharacterSet low;
    if (first && Sees("]")) break;
    if (Skip("\\")) {
      // Within a class \b is the backspace.
      if (Skip("b")) {
        low.Add('\b');
      } else {
        QUIRE_ASSIGN_OR_RETURN(low, ReadEscape());
      }
    } else {
      low.Add(NextCharacter());
    }
    const bool is_range = Sees("-") && !Sees("-]");
    if (!is_range) {
      set.Add(low);
      continue;
    }
    Skip("-");
    if (done()) return Malformed("a character class has no end");
    CharacterSet high;
    if (Skip("\\")) {
      QUIRE_ASSIGN_OR_RETURN(high, ReadEscape());
    } else {
      high.Add(NextCharacter());
    }
    if (!Only(low) || !Only(high)) return Malformed("a range of something that is no character");
    if (*Only(low) > *Only(high)) return Malformed("a range that ends before it begins");
    set.Add(*Only(low), *Only(high));
  }
  Skip("]");
  return negated ? set.Complement() : set;
}

Result<std::optional<uint32_t>> PatternScanner::ReadNumber() {
  std::optional<uint32_t> number;
  while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
    number = number.value_or(0) * 10 + static_cast<uint32_t>(text_[at_] - '0');
    if (*number > kCountMax) return Malformed("a count above 1000000000");
    ++at_;
  }
  return number;
}

Result<std::optional<PatternScanner::Count>> PatternScanner::ReadCount() {
  if (Skip("*")) return std::optional(Count{0, Grammar::kUnbounded});
  if (Skip("+")) return std::optional(Count{1, Grammar::kUnbounded});
  if (Skip("?")) return std::optional(Count{0, 1});
  if (!Skip("{")) return std::optional<Count>();
  QUIRE_ASSIGN_OR_RETURN(const std::optional<uint32_t> min, ReadNumber());
  std::optional<uint32_t> max = min;
  if (Skip(",")) {
    QUIRE_ASSIGN_OR_RETURN(max, ReadNumber());
    if (!min && !max) return Malformed("a count without numbers");
    if (!max) max = Grammar::kUnbounded;
  } else if (!min) {
    return Malformed("a brace that begins no count; write \\{ for the character");
  }
  if (!Skip("}")) return Malformed("a count has no closing brace");
  if (min.value_or(0) > *max) return Malformed("a count whose maximum is below its minimum");
  return std::optional(Count{min.value_or(0), *max});
}

}  // namespace quire::text
