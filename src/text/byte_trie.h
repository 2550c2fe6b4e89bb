// ByteTrie: a set of byte strings with a value each, walked byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quire::text {

class ByteTrie {
 public:
  static constexpr int kRoot = 0;
  struct Match {
    size_t length = 0;
    int32_t value = 0;
  };

  ByteTrie();
  // The first value given to a string stays. `key` is not empty.
  void Insert(std::string_view key, int32_t value);

  // The longest key that starts at text[position].
  std::optional<Match> LongestMatch(std::string_view text, size_t position) const;
  // No key starts with this byte: most positions of a text are passed over by this alone.
  bool StartsNoKey(char byte) const { return !first_bytes_[static_cast<uint8_t>(byte)]; }

  // The node reached from `node` by `byte`, nullopt where no key goes on so.
  std::optional<int> Child(int node, char byte) const;
  std::optional<int32_t> Value(int node) const { return nodes_[node].value; }
  int Depth(int node) const { return nodes_[node].depth; }
  int size() const { return static_cast<int>(nodes_.size()); }
  // The node's parent and the byte that leads from there to it; not for the root.
  int Parent(int node) const { return nodes_[node].parent; }
  char Byte(int node) const { return nodes_[node].byte; }

 private:
  struct Node {
    int parent = 0;
    int depth = 0;
    char byte = 0;
    std::optional<int32_t> value;
  };

  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, int> edges_;  // (node, byte) -> node
  std::array<bool, 256> first_bytes_ = {};
};

}  // namespace quire::text
