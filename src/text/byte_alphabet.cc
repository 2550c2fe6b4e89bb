#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace quire::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> letters;
  std::array<int16_t, 512> bytes;  // by character; -1 where the character is not in the alphabet
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    AppendCharacter(character, alphabet.letters[byte]);
    alphabet.bytes[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

std::string_view ByteLetter(uint8_t byte) {
  return TheAlphabet().letters[byte];
}

std::string SpellBytes(std::string_view bytes) {
  std::string letters;
  letters.reserve(bytes.size() * 2);
  for (const char byte : bytes) letters.append(ByteLetter(static_cast<uint8_t>(byte)));
  return letters;
}

std::optional<std::string> ReadByteLetters(std::string_view letters) {
  if (!IsValidUtf8(letters)) return std::nullopt;
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  bytes.reserve(letters.size());
  size_t position = 0;
  while (position < letters.size()) {
    const char32_t character = NextCharacter(letters, position);
    if (character >= alphabet.bytes.size() || alphabet.bytes[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.bytes[character]));
  }
  return bytes;
}

}  // namespace quire::text
