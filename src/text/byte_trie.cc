#include "text/byte_trie.h"

#include "base/check.h"

namespace quire::text {
namespace {

uint64_t EdgeKey(int node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

ByteTrie::ByteTrie() : nodes_(1) {}

void ByteTrie::Insert(std::string_view key, int32_t value) {
  QUIRE_CHECK(!key.empty());
  first_bytes_[static_cast<uint8_t>(key[0])] = true;
  int node = kRoot;
  for (const char byte : key) {
    const auto [edge, is_new] = edges_.try_emplace(EdgeKey(node, byte), size());
    if (is_new) {
      nodes_.push_back(
          {.parent = node, .depth = nodes_[node].depth + 1, .byte = byte, .value = std::nullopt});
    }
    node = edge->second;
  }
  if (!nodes_[node].value) nodes_[node].value = value;
}

std::optional<int> ByteTrie::Child(int node, char byte) const {
  const auto edge = edges_.find(EdgeKey(node, byte));
  if (edge == edges_.end()) return std::nullopt;
  return edge->second;
}

std::optional<ByteTrie::Match> ByteTrie::LongestMatch(std::string_view text,
                                                      size_t position) const {
  std::optional<Match> longest;
  if (position >= text.size() || StartsNoKey(text[position])) return longest;
  int node = kRoot;
  for (size_t i = position; i < text.size(); ++i) {
    const std::optional<int> child = Child(node, text[i]);
    if (!child) break;
    node = *child;
    if (nodes_[node].value) longest = Match{i - position + 1, *nodes_[node].value};
  }
  return longest;
}

}  // namespace quire::text
