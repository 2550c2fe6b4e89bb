#include "text/charsmap.h"

#include <cstring>

namespace quire::text {
namespace {

constexpr size_t kReplacementBytesMax = 256;

// Darts-clone's unit: label in bits 0-7, leaf flag in bit 8, offset in bits 10-31 (times 256 when
// bit 9 is set); a leaf's value in bits 0-30.
bool HasLeaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t Value(uint32_t unit) {
  return unit & 0x7fffffffu;
}
uint32_t Label(uint32_t unit) {
  return unit & 0x800000ffu;
}
uint32_t Offset(uint32_t unit) {
  return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 ||
      trie_bytes > blob.size() - sizeof trie_bytes) {
    return MakeError(ErrorKind::kInvalid,
                     "the normalization rules (precompiled_charsmap, {} bytes) are damaged: their "
                     "trie claims {} bytes",
                     blob.size(), trie_bytes);
  }
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  map.replacements_ = blob.substr(sizeof trie_bytes + trie_bytes);
  return map;
}

std::optional<Charsmap::Replacement> Charsmap::Find(std::string_view text, size_t position) const {
  std::optional<Replacement> longest;
  if (units_.empty()) return longest;
  uint32_t node = Offset(units_[0]);
  for (size_t i = position; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t start = Value(units_[node]);
    if (start > replacements_.size()) break;
    const std::string_view rest = std::string_view(replacements_).substr(start);
    // No rule of a real file makes that much of a character; a damaged one must not fill memory.
    if (rest.substr(0, kReplacementBytesMax + 1).find('\0') == std::string_view::npos) break;
    longest = Replacement{i - position + 1, rest.substr(0, rest.find('\0'))};
  }
  return longest;
}

}  // namespace quire::text
