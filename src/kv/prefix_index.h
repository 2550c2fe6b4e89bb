// PrefixIndex: the published blocks as a forest of exact token chains.
//
// Owns the blocks' identities: a block is (parent, exact tokens), a root is (salt, adapter). A hash
// only finds candidates; equality is decided on the tokens themselves. Knows which frame holds a
// block for each layer group, not what state the frame is in. Only KvCache calls it.
//
// A block lives while it has a frame, a child or a pin. In models whose layers all have windows a
// block may outlive its frames (its children are still cached): the chain stays walkable.
// Nothing allocates after construction but the salts of new roots.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/index_list.h"

namespace quire::kv {

// Requests with different keys share nothing. An empty salt equals none.
struct CacheKey {
  std::string_view salt;
  int adapter = 0;
};

// The hash of a block from its parent's hash and its tokens.
using BlockHash = std::function<uint64_t(uint64_t parent, std::span<const TokenId> tokens)>;

// A hash whose collisions cannot be aimed at without knowing the key.
BlockHash KeyedBlockHash(uint64_t key);

class PrefixIndex {
 public:
  struct Options {
    int blocks = 0;  // most blocks and roots known at a time
    int block_tokens = 0;
    int groups = 1;
    BlockHash hash;
  };
  // A block whose first `tokens` tokens are equal to those looked for.
  struct Partial {
    BlockId block;
    int tokens = 0;
  };

  explicit PrefixIndex(Options options);

  std::optional<BlockId> FindRoot(const CacheKey& key) const;
  // Finds or makes; nullopt when the index is full.
  std::optional<BlockId> AddRoot(const CacheKey& key);

  // The child of `parent` with exactly these block_tokens tokens.
  std::optional<BlockId> Find(BlockId parent, std::span<const TokenId> tokens) const;
  // The child sharing the most leading tokens with `tokens` (at least one) that `usable` accepts,
  // among the kPartialCandidates newest children: a prompt's neighbours may be many, the search is
  // bounded.
  std::optional<Partial> FindPartial(BlockId parent, std::span<const TokenId> tokens,
                                     base::FunctionRef<bool(Partial)> usable) const;
  static constexpr int kPartialCandidates = 64;

  // A new child, without frames. nullopt when the index is full. It vanishes unless it gets a frame
  // or a pin before the next call that may erase.
  std::optional<BlockId> Add(BlockId parent, std::span<const TokenId> tokens);

  void Pin(BlockId block) { ++At(block).pins; }
  void Unpin(BlockId block);

  std::optional<FrameId> frame(BlockId block, int group) const;
  void SetFrame(BlockId block, int group, FrameId frame);
  // May erase the block and ancestors that were only kept for it.
  void ClearFrame(BlockId block, int group);

  std::optional<BlockId> parent(BlockId block) const;
  std::optional<BlockId> newest_child(BlockId block) const;
  int depth(BlockId block) const { return At(block).depth; }  // roots: 0
  std::span<const TokenId> tokens(BlockId block) const;
  int blocks() const { return used_; }  // roots included
  int capacity() const { return options_.blocks; }
  // Grows whenever the answer of a lookup may have changed.
  uint64_t version() const { return version_; }

  // Calls visit(block) for every block, roots included.
  void ForEach(base::FunctionRef<void(BlockId)> visit) const;
  int pins(BlockId block) const { return At(block).pins; }

  // Recounts children, frames and hash chains; aborts on a difference.
  void CheckInvariants() const;

 private:
  struct Block {
    uint64_t hash = 0;
    int32_t parent = base::kNoIndex;  // kNoIndex: a root
    int32_t bucket_next = base::kNoIndex;
    int32_t depth = 0;
    int32_t pins = 0;
    int32_t frames = 0;
    int32_t root = base::kNoIndex;  // roots: their key in root_keys_
    bool used = false;
    base::IndexList children;  // newest first, linked through links_
  };
  struct RootKey {
    std::string salt;
    int adapter = 0;
  };

  Block& At(BlockId block) { return blocks_[block.value]; }
  const Block& At(BlockId block) const { return blocks_[block.value]; }
  uint64_t RootHash(const CacheKey& key) const;
  int32_t& Bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  int32_t Bucket(uint64_t hash) const { return buckets_[hash & (buckets_.size() - 1)]; }
  std::optional<BlockId> NewBlock(uint64_t hash, std::optional<BlockId> parent);
  void EraseWhileUnneeded(BlockId block);

  Options options_;
  std::vector<Block> blocks_;
  std::vector<TokenId> tokens_;   // [blocks, block_tokens]
  std::vector<int32_t> frames_;   // [blocks, groups]; kNoIndex: none
  std::vector<int32_t> buckets_;  // power of two; heads of chains through bucket_next
  base::IndexLinks links_;        // children lists; unused blocks
  base::IndexList unused_;
  std::vector<RootKey> root_keys_;
  std::vector<int32_t> free_root_keys_;
  int used_ = 0;
  uint64_t version_ = 0;
};

}  // namespace quire::kv
