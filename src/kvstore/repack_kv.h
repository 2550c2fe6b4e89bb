// What token eviction does to the bytes of a sequence that lives in slots: surviving tokens are
// repacked into the blocks of another lease, or one token takes another's slot in place.
//
// A token keeps what is stored of it (a rotated key's angle, codes, scales) wherever that is
// possible:
//   f16 to f16 (tail, sinks, f16 planes)              exact
//   code to code: f32, f16, bf16, int8, int4, and     exact: scales belong to the token
//     kivi's values
//   f16 to code                                       as if sealed now
//   code to f16 (tail or sink of the new sequence)    decoded, rounded to f16
//   fp8, and kivi's keys                              decoded and sealed anew with the block's new
//                                                     neighbours: as far off again as the first
//                                                     time
//   a whole block that stays one                      exact, in every codec
// Which slots are seen in f16 follows from the slot alone, as for any sequence (kv_format.h).
#pragma once

#include <span>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kvstore/block_pieces.h"
#include "kvstore/kv_store.h"
#include "tensor/buffer.h"
#include "tensor/view.h"

namespace quire::kvstore {

struct Repack {
  // The source: a sequence of so many computed slots. Its frames are only read, and others may
  // share them, unless they are the target's too.
  std::span<const BlockTable> from;  // [layout.table_count()]
  int from_slots = 0;
  // A sequence with room for kept.cols slots, as a step that computed all of them would leave it:
  // in other frames, or in the source's first ones. The latter takes whole residual groups, and the
  // source's sinks stay.
  std::span<const BlockTable> to;  // [layout.table_count()]
  // Slots of the source that stay, per layer and KV head, ascending: slot kept(row, i) becomes i.
  MatrixView<const int> kept;  // [layers * kv_heads, slots], row = layer * kv_heads + kv_head
};

// Owns scratch for two blocks per thread, allocated at construction.
class KvRepacker {
 public:
  KvRepacker(const KvLayout& layout, int threads);

  // The team may have at most `threads` threads; they share layers and KV heads.
  void Run(const kernels::KernelTable& kernels, KvStore& store, const Repack& repack,
           base::ThreadTeam& team);

 private:
  size_t full_bytes_ = 0;  // of a block's f16 keys or values, which no codec exceeds
  int threads_ = 0;
  Buffer scratch_;  // [threads, 2, full_bytes]
};

// In one layer and KV head: the token of slot `from` replaces that of slot `to`.
struct TokenMove {
  int layer = 0;
  int kv_head = 0;
  int from = 0;
  int to = 0;
};

// Moves tokens within a sequence, one after another. For layouts without a tail; the blocks of all
// `to` must be the sequence's alone.
void MoveTokens(const kernels::KernelTable& kernels, KvStore& store,
                std::span<const BlockTable> tables, std::span<const TokenMove> moves);

}  // namespace quire::kvstore
