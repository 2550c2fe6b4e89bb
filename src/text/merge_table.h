// MergeTable: which pairs of tokens join, in which order, to what.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/bpe_merge.h"
#include "text/vocabulary.h"

namespace quire::text {

class MergeTable {
 public:
  // merges[i] has rank i. Each side and what they join to must be tokens.
  static Result<MergeTable> Create(const std::vector<std::pair<std::string, std::string>>& merges,
                                   const Vocabulary& vocabulary);

  std::optional<BpeMerge> Find(TokenId left, TokenId right) const {
    const uint64_t key = Key(left, right);
    for (size_t slot = Hash(key);; ++slot) {
      const Entry& entry = entries_[slot & mask_];
      if (entry.key == key) return entry.merge;
      if (entry.key == kEmpty) return std::nullopt;
    }
  }

 private:
  struct Entry {
    uint64_t key = kEmpty;
    BpeMerge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no token has the id -1

  static uint64_t Key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static size_t Hash(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 24; }

  std::vector<Entry> entries_;  // open addressing, at most half full
  size_t mask_ = 0;
};

}  // namespace quire::text
