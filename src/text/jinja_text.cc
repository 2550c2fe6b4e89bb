#include "text/jinja_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

namespace quire::text::jinja {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

bool IsContinuation(char c) {
  return (c & 0xC0) == 0x80;
}

char AsciiUpper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
}
char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// Bytes of the valid sequence at `offset`, 0 where there is none.
int ValidSequence(std::string_view text, size_t offset) {
  auto byte = [&](size_t i) {
    return offset + i < text.size() ? static_cast<unsigned char>(text[offset + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
  if (lead == 0xED && second > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && second < 0x90) return 0;  // overlong
  if (lead == 0xF4 && second > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

std::string ToUtf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

icu::UnicodeString ToUtf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// The full upper-case form of one code point in title position.
void AppendTitle(std::string& out, char32_t c) {
  const UChar32 title = u_totitle(static_cast<UChar32>(c));
  if (title != static_cast<UChar32>(c) ||
      !u_hasBinaryProperty(title, UCHAR_CHANGES_WHEN_UPPERCASED)) {
    AppendCodePoint(out, static_cast<char32_t>(title));
    return;
  }
  // Letters such as sharp s whose upper case is several letters: only the first stays upper.
  icu::UnicodeString upper =
      icu::UnicodeString(static_cast<UChar32>(c)).toUpper(icu::Locale::getRoot());
  const int32_t first = upper.moveIndex32(0, 1);
  icu::UnicodeString rest(upper, first);
  upper.truncate(first);
  out += ToUtf8(upper);
  out += ToUtf8(rest.toLower(icu::Locale::getRoot()));
}

std::string TitleOfWords(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, offset);
    if (in_word) {
      out += ToUtf8(icu::UnicodeString(static_cast<UChar32>(c)).toLower(icu::Locale::getRoot()));
    } else {
      AppendTitle(out, c);
    }
    in_word = u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED);
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t offset = 0; offset < text.size();) {
    const auto c = static_cast<UChar32>(NextCodePoint(text, offset));
    icu::UnicodeString one(c);
    if (u_isUUppercase(c)) {
      one.toLower(icu::Locale::getRoot());
    } else if (u_isULowercase(c)) {
      one.toUpper(icu::Locale::getRoot());
    }
    out += ToUtf8(one);
  }
  return out;
}

bool HasNumericType(UChar32 c, int strongest) {
  const int type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || (strongest >= 1 && type == U_NT_DIGIT) ||
         (strongest >= 2 && type == U_NT_NUMERIC);
}

bool IsPrintable(UChar32 c) {
  if (c == ' ') return true;
  constexpr uint32_t kHidden = U_GC_C_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(c) & kHidden) == 0;
}

bool IsAlnum(UChar32 c) {
  return u_isalpha(c) || HasNumericType(c, 2);
}

// Lower, upper and title need at least one cased letter.
bool IsCased(std::string_view text, TextClass text_class) {
  bool any = false;
  bool previous_cased = false;
  for (size_t offset = 0; offset < text.size();) {
    const auto c = static_cast<UChar32>(NextCodePoint(text, offset));
    const bool upper = u_isUUppercase(c) || u_charType(c) == U_TITLECASE_LETTER;
    const bool lower = u_isULowercase(c);
    if (text_class == TextClass::kLower && upper) return false;
    if (text_class == TextClass::kUpper && (lower || u_charType(c) == U_TITLECASE_LETTER)) {
      return false;
    }
    if (text_class == TextClass::kTitle) {
      if (upper && previous_cased) return false;
      if (lower && !previous_cased) return false;
    }
    previous_cased = upper || lower;
    any = any || previous_cased;
  }
  return any;
}

bool IsIdentifier(std::string_view text) {
  size_t offset = 0;
  if (text.empty() || !IsIdentifierStart(NextCodePoint(text, offset))) return false;
  while (offset < text.size()) {
    if (!IsIdentifierPart(NextCodePoint(text, offset))) return false;
  }
  return true;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

void AppendEscape(std::string& out, char32_t c) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += '\\';
  out += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[(c >> shift) & 15];
}

// Digits with single underscores between them, as Python allows; nullopt where misplaced.
std::optional<std::string> DropUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    auto is_digit = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const int length = ValidSequence(text, offset);
    if (length == 0) return false;
    offset += static_cast<size_t>(length);
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const int length = ValidSequence(text, offset);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++offset;
    } else {
      out += text.substr(offset, static_cast<size_t>(length));
      offset += static_cast<size_t>(length);
    }
  }
  return out;
}

void AppendCodePoint(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

char32_t NextCodePoint(std::string_view text, size_t& offset) {
  const auto lead = static_cast<unsigned char>(text[offset++]);
  if (lead < 0x80) return lead;
  char32_t c = lead >= 0xF0 ? lead & 0x07 : lead >= 0xE0 ? lead & 0x0F : lead & 0x1F;
  while (offset < text.size() && IsContinuation(text[offset])) {
    c = (c << 6) | (static_cast<unsigned char>(text[offset++]) & 0x3F);
  }
  return c;
}

char32_t PreviousCodePoint(std::string_view text, size_t& offset) {
  do {
    --offset;
  } while (offset > 0 && IsContinuation(text[offset]));
  size_t forward = offset;
  return NextCodePoint(text, forward);
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); });
}

size_t ByteOffset(std::string_view text, int64_t index) {
  size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    ++offset;
    while (offset < text.size() && IsContinuation(text[offset])) ++offset;
    --index;
  }
  return offset;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsIdentifierStart(char32_t c) {
  if (c < 0x80) return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_XID_START);
}

bool IsIdentifierPart(char32_t c) {
  if (c < 0x80) return IsIdentifierStart(c) || (c >= '0' && c <= '9');
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_XID_CONTINUE);
}

std::string_view Strip(std::string_view text, std::optional<std::string_view> chars, Sides sides) {
  auto drops = [&](char32_t c) {
    if (!chars) return IsSpace(c);
    for (size_t offset = 0; offset < chars->size();) {
      if (NextCodePoint(*chars, offset) == c) return true;
    }
    return false;
  };
  if (sides != Sides::kRight) {
    while (!text.empty()) {
      size_t offset = 0;
      if (!drops(NextCodePoint(text, offset))) break;
      text.remove_prefix(offset);
    }
  }
  if (sides != Sides::kLeft) {
    while (!text.empty()) {
      size_t offset = text.size();
      if (!drops(PreviousCodePoint(text, offset))) break;
      text = text.substr(0, offset);
    }
  }
  return text;
}

std::string ToCase(std::string_view text, LetterCase letter_case) {
  if (IsAscii(text) && (letter_case == LetterCase::kUpper || letter_case == LetterCase::kLower)) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   letter_case == LetterCase::kUpper ? AsciiUpper : AsciiLower);
    return out;
  }
  switch (letter_case) {
    case LetterCase::kUpper:
      return ToUtf8(ToUtf16(text).toUpper(icu::Locale::getRoot()));
    case LetterCase::kLower:
      return ToUtf8(ToUtf16(text).toLower(icu::Locale::getRoot()));
    case LetterCase::kFolded:
      return ToUtf8(ToUtf16(text).foldCase());
    case LetterCase::kSwapped:
      return SwapCase(text);
    case LetterCase::kTitle:
      return TitleOfWords(text);
    case LetterCase::kCapitalized:
      break;
  }
  if (text.empty()) return {};
  std::string out;
  size_t offset = 0;
  AppendTitle(out, NextCodePoint(text, offset));
  return out + ToCase(text.substr(offset), LetterCase::kLower);
}

bool IsOfClass(std::string_view text, TextClass text_class) {
  switch (text_class) {
    case TextClass::kAscii:
      return IsAscii(text);
    case TextClass::kLower:
    case TextClass::kUpper:
    case TextClass::kTitle:
      return IsCased(text, text_class);
    case TextClass::kIdentifier:
      return IsIdentifier(text);
    default:
      break;
  }
  auto holds = [text_class](UChar32 c) {
    switch (text_class) {
      case TextClass::kAlnum:
        return IsAlnum(c);
      case TextClass::kAlpha:
        return u_isalpha(c) != 0;
      case TextClass::kDecimal:
        return HasNumericType(c, 0);
      case TextClass::kDigit:
        return HasNumericType(c, 1);
      case TextClass::kNumeric:
        return HasNumericType(c, 2);
      case TextClass::kPrintable:
        return IsPrintable(c);
      default:
        return IsSpace(static_cast<char32_t>(c));
    }
  };
  for (size_t offset = 0; offset < text.size();) {
    if (!holds(static_cast<UChar32>(NextCodePoint(text, offset)))) return false;
  }
  return !text.empty() || text_class == TextClass::kPrintable;
}

std::vector<std::string_view> SplitLines(std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t line_end = offset;
    const char32_t c = NextCodePoint(text, offset);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && offset < text.size() && text[offset] == '\n') ++offset;
    lines.push_back(text.substr(start, (ends == LineEnds::kKeep ? offset : line_end) - start));
    start = offset;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const size_t exponent_start = e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + exponent_start, text.data() + text.size(), exponent);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    return out + std::to_string(std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  return out + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

std::string StringRepr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    const char32_t c = NextCodePoint(text, offset);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(static_cast<UChar32>(c))) {
      out += text.substr(start, offset - start);
    } else {
      AppendEscape(out, c);
    }
  }
  return out + quote;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text, std::nullopt, Sides::kBoth);
  std::optional<std::string> digits = DropUnderscores(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string lower = ToCase(rest, LetterCase::kLower);
  if (lower == "inf" || lower == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (lower == "nan") return std::nan("");
  if (rest.empty() || (rest[0] != '.' && (rest[0] < '0' || rest[0] > '9'))) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    value = std::strtod(std::string(rest).c_str(), nullptr);  // from_chars does not say which end
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<ParsedInt> ParseInt(std::string_view text, int base) {
  text = Strip(text, std::nullopt, Sides::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char letter = AsciiLower(text[1]);
    const int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == 0 || base == prefixed)) {
      base = prefixed;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) {
      return std::nullopt;  // Python refuses leading zeros where the base is to be guessed
    }
  }
  std::optional<std::string> digits = DropUnderscores(text);
  if (!digits || digits->empty() || digits->front() == '-' || base < 2 || base > 36) {
    return std::nullopt;
  }
  if (negative) digits->insert(0, "-");
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits->data(), digits->data() + digits->size(), value, base);
  if (end != digits->data() + digits->size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return ParsedInt{.fits = false};
  if (error != std::errc()) return std::nullopt;
  return ParsedInt{value};
}

}  // namespace quire::text::jinja
