// WriteKv: puts a step's new keys and values of one layer where attention will read them.
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

// Stores the step's keys and values in the frames of the plan's runs.
void WriteKv(const kernels::KernelTable& kernels, const AttentionPlan& plan, KvStore& store,
             const KvRows& rows, base::ThreadTeam& team);

}  // namespace quire::kvstore
