// Text as Python sees it: strings are sequences of code points, white space and letter case are
// Unicode's, floats print in their shortest form. Helpers of the template engine; they know no
// template values.
//
// Invariant: every std::string_view passed in is valid UTF-8, and every result is too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text::jinja {

bool IsValidUtf8(std::string_view text);
// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendCodePoint(std::string& out, char32_t code_point);
// The code point that starts at byte `offset`; `offset` moves behind it.
char32_t NextCodePoint(std::string_view text, size_t& offset);
// The code point that ends before byte `offset` (> 0); `offset` moves to its first byte.
char32_t PreviousCodePoint(std::string_view text, size_t& offset);
int64_t CountCodePoints(std::string_view text);
// Byte offset of code point `index`, text.size() where the text is shorter.
size_t ByteOffset(std::string_view text, int64_t index);

bool IsSpace(char32_t code_point);
bool IsIdentifierStart(char32_t code_point);
bool IsIdentifierPart(char32_t code_point);

enum class Sides { kBoth, kLeft, kRight };
// Removes white space, or the code points in `chars`, from the sides.
std::string_view Strip(std::string_view text, std::optional<std::string_view> chars, Sides sides);

enum class LetterCase {
  kUpper,
  kLower,
  kFolded,
  kSwapped,
  kTitle,       // every word's first letter
  kCapitalized  // the first letter of the text, the rest lower
};
std::string ToCase(std::string_view text, LetterCase letter_case);

enum class TextClass {
  kAlnum,
  kAlpha,
  kAscii,
  kDecimal,
  kDigit,
  kIdentifier,
  kLower,
  kNumeric,
  kPrintable,
  kSpace,
  kTitle,
  kUpper
};
// Python's str.isalnum() and its kin.
bool IsOfClass(std::string_view text, TextClass text_class);

enum class LineEnds { kDrop, kKeep };
// Python's str.splitlines(): also splits at \v, \f, \x1c..\x1e, U+0085, U+2028 and U+2029.
std::vector<std::string_view> SplitLines(std::string_view text, LineEnds ends);

// repr() of a float: the shortest digits that read back as the same value.
std::string FloatRepr(double value);
// repr() of a string, with its quotes.
std::string StringRepr(std::string_view text);

// float(text), int(text, base): nullopt where Python raises ValueError.
std::optional<double> ParseFloat(std::string_view text);
struct ParsedInt {
  int64_t value = 0;
  bool fits = true;  // into 64 bits; `value` means nothing otherwise
};
std::optional<ParsedInt> ParseInt(std::string_view text, int base);

}  // namespace quire::text::jinja
