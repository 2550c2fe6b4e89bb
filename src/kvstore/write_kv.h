// WriteKv: puts a step's new keys and values of one layer where attention will read them, and seals
// what the step completes.
//
// Without residual groups rows are encoded into their block's frame at once. With them rows go to
// the block's f16 pieces (in tail frames, or in the plan's staging area where the step begins and
// completes the block), and every residual group that the step completes is encoded from there:
// before the layer's attention, because later queries of the same step see it sealed.
#pragma once

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kvstore/attention_plan.h"
#include "kvstore/kv_store.h"
#include "tensor/view.h"

namespace quire::kvstore {

// A step's new keys (already rotated) and values of one layer.
struct KvRows {
  int layer = 0;
  MatrixView<const float> keys;    // [rows, kv_heads * head_dim]
  MatrixView<const float> values;  // [rows, kv_heads * head_dim]
};

// Stores the step's keys and values in the frames of the plan's runs. The team may have at most
// plan.threads() threads.
void WriteKv(const kernels::KernelTable& kernels, AttentionPlan& plan, KvStore& store,
             const KvRows& rows, base::ThreadTeam& team);

}  // namespace quire::kvstore
