// CharacterSet: a set of Unicode characters, as the classes of patterns and grammars name them, and
// the byte sequences that spell them in UTF-8. Surrogates are never members.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::text {

class CharacterSet {
 public:
  struct Range {
    char32_t low = 0;
    char32_t high = 0;  // included
    bool operator==(const Range&) const = default;
  };

  CharacterSet() = default;
  CharacterSet(char32_t low, char32_t high) { Add(low, high); }
  static CharacterSet All() { return {0, 0x10ffff}; }

  void Add(char32_t low, char32_t high);
  void Add(char32_t character) { Add(character, character); }
  void Add(const CharacterSet& other);
  CharacterSet Complement() const;
  CharacterSet Without(const CharacterSet& other) const;

  // Ascending, not touching one another.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool Contains(char32_t character) const;

 private:
  std::vector<Range> ranges_;
};

struct ByteRange {
  uint8_t low = 0;
  uint8_t high = 0;  // included
  auto operator<=>(const ByteRange&) const = default;
};

// A text of as many bytes as ranges, each within its own.
using ByteRanges = std::vector<ByteRange>;

// Byte sequences that together spell exactly the characters of `set`; no two have a text in common.
std::vector<ByteRanges> Utf8Sequences(const CharacterSet& set);

}  // namespace quire::text
