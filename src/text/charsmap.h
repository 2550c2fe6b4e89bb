// Charsmap: the compiled normalization rules inside a SentencePiece model (precompiled_charsmap).
//
// Format: u32 trie_bytes, a double-array trie (Darts-clone units of 32 bits, little endian) of
// trie_bytes bytes, then the replacements as zero-terminated strings. The trie maps a string to the
// offset of its replacement; the longest match wins. Every index read from it is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::text {

class Charsmap {
 public:
  // `blob` as the file has it; an empty one is the identity.
  static Result<Charsmap> Parse(std::string_view blob);

  struct Replacement {
    size_t length = 0;  // bytes of text it replaces
    std::string_view text;
  };
  // The replacement of the longest rule that applies at text[position].
  std::optional<Replacement> Find(std::string_view text, size_t position) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace quire::text
