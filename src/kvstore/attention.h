// Attention over the paged KV cache: one entry point for prefill, decode, verification and batches
// that mix them. Free functions; the plan says who does what, the store holds the bytes.
//
// Numbers: a query row's result depends on its position, its window, and the stored keys and values
// of the positions it sees; never on the batch, the chunking of a prefill, the number of threads,
// the frames' whereabouts or (quantized codecs apart) the block size. Per row, positions are taken
// in spans of kernels::kSpan, aligned at absolute positions; each span has its own softmax (see
// attention_kernels.h), and spans are merged from left to right in f32:
//   M = max(m1, m2); sum = sum1 e^(m1-M) + sum2 e^(m2-M); out likewise; at the end out / sum
// (online softmax, 1805.02867; split over KV as in Flash-Decoding). Sinks that a run's window has
// left behind (SequenceRun) have spans and softmaxes of their own, merged before the others. Memory
// of positions that a row does not see may hold anything, NaN included.
#pragma once

#include <span>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kvstore/attention_plan.h"
#include "kvstore/kv_store.h"
#include "kvstore/write_kv.h"
#include "tensor/view.h"

namespace quire::kvstore {

struct AttentionParams {
  float scale = 1.0f;    // multiplies q.k
  float softcap = 0.0f;  // 0: none; else s = softcap * tanh(s / softcap)
};

struct AttentionRows {
  int layer = 0;
  MatrixView<const float> queries;  // [rows, q_heads * head_dim]
  MatrixView<float> out;            // [rows, q_heads * head_dim]
  AttentionParams params;
  // [plan.requests()] what each request adds to: [kv_heads, slots], with room for every slot that
  // the run's rows see (attention_scores.h).
  std::span<const MatrixView<float>> scores = {};
  // Rotated to the distance in slots from the sinks instead of the distance in positions: a query
  // with n kept tokens before it as if it stood at position n, the sinks being at 0, 1... Of rows
  // whose window has left the sinks of their run behind; others are not read.
  MatrixView<const float> sink_queries = {};  // [rows, q_heads * head_dim]
};

// out = softmax(scale * q.k) v for every row of the plan's runs; rows of the batch that belong to
// no run are left alone. Rows that the plan's requests name add what they pay to `scores`. The team
// may have at most plan.threads() threads.
void Attention(const kernels::KernelTable& kernels, AttentionPlan& plan, const KvStore& store,
               const AttentionRows& rows, base::ThreadTeam& team);

}  // namespace quire::kvstore
