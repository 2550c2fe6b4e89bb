#include "text/merge_table.h"

#include <bit>

namespace quire::text {

Result<MergeTable> MergeTable::Create(
    const std::vector<std::pair<std::string, std::string>>& merges, const Vocabulary& vocabulary) {
  MergeTable table;
  table.entries_.resize(std::bit_ceil(merges.size() * 2 + 2));
  table.mask_ = table.entries_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left_piece, right_piece] = merges[rank];
    const std::optional<TokenId> left = vocabulary.Find(left_piece);
    const std::optional<TokenId> right = vocabulary.Find(right_piece);
    const std::optional<TokenId> joined = vocabulary.Find(left_piece + right_piece);
    if (!left || !right || !joined) {
      return MakeError(ErrorKind::kInvalid,
                       "merge {} joins '{}' and '{}', but not all of them and '{}' are tokens",
                       rank, left_piece, right_piece, left_piece + right_piece);
    }
    const uint64_t key = Key(*left, *right);
    size_t slot = Hash(key);
    while (table.entries_[slot & table.mask_].key != kEmpty &&
           table.entries_[slot & table.mask_].key != key) {
      ++slot;
    }
    Entry& entry = table.entries_[slot & table.mask_];
    if (entry.key == kEmpty) entry = {key, {static_cast<int32_t>(rank), *joined}};
  }
  return table;
}

}  // namespace quire::text
