// BlockLookup: where one KV head's blocks lie in one layer, as the rows of one work unit see them:
// sealed, or in f16 where block and rows belong to the same residual group.
#pragma once

#include "kvstore/attention_plan.h"
#include "kvstore/kv_store.h"

namespace quire::kvstore {

struct BlockPieces {
  const std::byte* keys = nullptr;    // [head_dim, block_size] as key_codec stores them
  const std::byte* values = nullptr;  // [block_size, head_dim] as value_codec stores them
  kernels::KvCodec key_codec = kernels::KvCodec::kF16;
  kernels::KvCodec value_codec = kernels::KvCodec::kF16;
  // Where not null: the block's first layout.sink_tokens() tokens are to be taken from here, in
  // f16. The pieces above hold zeros or the same tokens encoded in their place.
  const std::byte* sink_keys = nullptr;    // [head_dim, kSinkBlock]
  const std::byte* sink_values = nullptr;  // [sink_tokens, head_dim]
};

class BlockLookup {
 public:
  BlockLookup(const AttentionPlan& plan, const KvStore& store, int layer,
              const AttentionPlan::Unit& unit);

  // Block `block` of the unit's sequence, which its rows see.
  BlockPieces operator()(int block) const;

 private:
  const AttentionPlan& plan_;
  const KvStore& store_;
  const KvLayout& layout_;
  const SequenceRun& run_;
  const BlockTable& table_;
  KvCodecs codecs_;
  int layer_ = 0;
  int run_index_ = 0;
  int kv_head_ = 0;
  int own_begin_ = 0;  // blocks of the rows' residual group
  int own_end_ = 0;
  size_t key_offset_ = 0;
  size_t value_offset_ = 0;
};

}  // namespace quire::kvstore
