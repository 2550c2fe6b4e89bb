#include "text/character_set.h"

#include <algorithm>
#include <string>

#include "text/utf8.h"

namespace quire::text {
namespace {

constexpr char32_t kSurrogatesBegin = 0xd800;
constexpr char32_t kSurrogatesEnd = 0xdfff;
constexpr char32_t kLast = 0x10ffff;

// Splits [low, high] until all its characters have as many bytes, and differ, from some byte on,
// in whole ranges of continuation bytes.
void Split(char32_t low, char32_t high, std::vector<ByteRanges>& out) {
  for (const char32_t length_end : {0x7fu, 0x7ffu, 0xffffu}) {
    if (low <= length_end && length_end < high) {
      Split(low, length_end, out);
      Split(length_end + 1, high, out);
      return;
    }
  }
  for (int bytes = 1; bytes < 4; ++bytes) {
    const char32_t mask = (char32_t{1} << (6 * bytes)) - 1;
    if (high <= 0x7f || (low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      Split(low, low | mask, out);
      Split((low | mask) + 1, high, out);
      return;
    }
    if ((high & mask) != mask) {
      Split(low, (high & ~mask) - 1, out);
      Split(high & ~mask, high, out);
      return;
    }
  }
  std::string first;
  std::string last;
  AppendCharacter(low, first);
  AppendCharacter(high, last);
  ByteRanges& ranges = out.emplace_back();
  for (size_t i = 0; i < first.size(); ++i) {
    ranges.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
  }
}

}  // namespace

void CharacterSet::Add(char32_t low, char32_t high) {
  high = std::min(high, kLast);
  if (low < kSurrogatesBegin && high >= kSurrogatesBegin) {
    Add(low, kSurrogatesBegin - 1);
    low = kSurrogatesEnd + 1;
  } else if (low >= kSurrogatesBegin && low <= kSurrogatesEnd) {
    low = kSurrogatesEnd + 1;
  }
  if (high >= kSurrogatesBegin && high <= kSurrogatesEnd) high = kSurrogatesBegin - 1;
  if (low > high) return;
  // The ranges that touch the new one become part of it.
  auto begin =
      std::ranges::lower_bound(ranges_, low, {}, [](const Range& r) { return r.high + 1; });
  auto end = begin;
  while (end != ranges_.end() && end->low <= high + 1) {
    low = std::min(low, end->low);
    high = std::max(high, end->high);
    ++end;
  }
  begin = ranges_.erase(begin, end);
  ranges_.insert(begin, {low, high});
}

void CharacterSet::Add(const CharacterSet& other) {
  for (const Range& range : other.ranges_) Add(range.low, range.high);
}

CharacterSet CharacterSet::Complement() const {
  CharacterSet rest;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.low > next) rest.Add(next, range.low - 1);
    next = range.high + 1;
  }
  if (next <= kLast) rest.Add(next, kLast);
  return rest;
}

CharacterSet CharacterSet::Without(const CharacterSet& other) const {
  CharacterSet all = Complement();
  all.Add(other);
  return all.Complement();
}

bool CharacterSet::Contains(char32_t character) const {
  const auto range = std::ranges::lower_bound(ranges_, character, {}, &Range::high);
  return range != ranges_.end() && range->low <= character;
}

std::vector<ByteRanges> Utf8Sequences(const CharacterSet& set) {
  std::vector<ByteRanges> sequences;
  for (const CharacterSet::Range& range : set.ranges()) Split(range.low, range.high, sequences);
  return sequences;
}

}  // namespace quire::text
