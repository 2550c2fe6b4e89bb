// UTF-8: one rule for what is not well-formed. Each maximal subpart of an ill-formed sequence
// (Unicode 15, section 3.9) becomes one U+FFFD, when encoding a text and when decoding tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::text {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";
inline constexpr std::string_view kMetaspace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

bool IsValidUtf8(std::string_view text);

// `text` itself where it is well-formed, else with replacements.
std::string ToValidUtf8(std::string_view text);

// Of well-formed text.
int64_t CountCharacters(std::string_view text);

// Bytes of the character that starts with `lead`, in well-formed text.
inline size_t CharacterLength(char lead) {
  const uint8_t byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The character at `position` of well-formed text; moves `position` behind it.
char32_t NextCharacter(std::string_view text, size_t& position);
// The character that ends before `position`; moves `position` to its start.
char32_t PreviousCharacter(std::string_view text, size_t& position);
void AppendCharacter(char32_t character, std::string& out);

// Unicode's White_Space property.
bool IsWhiteSpace(char32_t character);

// Turns a stream of bytes into well-formed UTF-8, holding back a character's first bytes until it
// is certain what they are (3 bytes at most). Copies are snapshots.
class Utf8Stream {
 public:
  void Append(std::string_view bytes, std::string& out);
  // Nothing follows: what is held back becomes one U+FFFD.
  void Finish(std::string& out);
  bool HoldsBack() const { return pending_size_ > 0; }

 private:
  void AppendByte(char byte, std::string& out);

  std::array<char, 4> pending_ = {};
  uint8_t pending_size_ = 0;
};

}  // namespace quire::text
