// GPT-2's alphabet: a printable character for each of the 256 bytes, so that byte-level
// vocabularies can be written as text. Printable Latin-1 bytes stand for themselves, the others for
// U+0100 and up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::text {

// The character that stands for `byte`, in UTF-8.
std::string_view ByteLetter(uint8_t byte);

// `bytes` spelled in the alphabet.
std::string SpellBytes(std::string_view bytes);

// The bytes that `letters` spell; nullopt where a character is not in the alphabet.
std::optional<std::string> ReadByteLetters(std::string_view letters);

}  // namespace quire::text
