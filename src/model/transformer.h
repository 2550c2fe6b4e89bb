// Transformer: the forward pass. Tokens in, logits out; keys and values go to and come from the KV
// store's frames.
//
// Owns its scratch memory and the step's attention plan; borrows weights, kernels and threads. One
// caller at a time. A step's numbers do not depend on what else is in the batch, on chunking or on
// the number of threads (docs/NUMERICS.md).
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kvstore/attention.h"
#include "kvstore/attention_plan.h"
#include "kvstore/kv_store.h"
#include "model/activations.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "model/weights.h"

namespace quire::model {

// What a step computes. Views into the caller's arrays, valid until the next Forward.
struct Batch {
  std::span<const TokenId> tokens;             // [rows]
  std::span<const int> positions;              // [rows] position of each token in its sequence
  std::span<const kvstore::SequenceRun> runs;  // whose rows these are, and where their KV lies
  std::span<const int> logit_rows;             // rows whose logits are wanted, ascending

  // Runs whose attention is wanted too, and what each adds to (kvstore/attention_scores.h):
  // [layers * kv_heads, slots].
  std::span<const kvstore::ScoreRequest> score_requests = {};
  std::span<const MatrixView<float>> scores = {};
};

// What a Transformer borrows; all of it outlives the Transformer.
struct TransformerParts {
  const ModelConfig& config;
  const Weights& weights;
  const kernels::KernelTable& kernels;
  base::ThreadTeam& team;
};

class Transformer {
 public:
  Transformer(const TransformerParts& parts, const kvstore::KvLayout& layout,
              const StepLimits& limits);

  // Runs the batch: writes its keys and values to the store and keeps the final hidden states of
  // batch.logit_rows.
  void Forward(const Batch& batch, kvstore::KvStore& store);

  // Logits of logit_rows[first .. first + count) of the last Forward: [count, vocab_size]. Valid
  // until the next call. count <= limits.logit_rows.
  MatrixView<const float> Logits(int first, int count);

  // Final hidden state (after the last norm) of every logit row: [logit_rows, hidden_size].
  MatrixView<const float> FinalHidden() const { return final_hidden_; }

  size_t scratch_bytes() const { return activations_.bytes(); }

 private:
  std::span<const MatrixView<float>> ScoresOfLayer(const Batch& batch, int layer);
  void Embed(std::span<const TokenId> tokens);
  struct Angles {
    MatrixView<float> cos;  // [rows, rope pairs]
    MatrixView<float> sin;
  };
  void PrepareAngles(std::span<const int> positions, const Angles& angles);
  void PrepareSinkAngles(std::span<const kvstore::SequenceRun> runs);
  Angles PositionAngles() { return {activations_.cos(rows_), activations_.sin(rows_)}; }
  Angles SinkAngles() { return {activations_.sink_cos(rows_), activations_.sink_sin(rows_)}; }
  void ProjectQkv(const LayerWeights& weights);
  void PlaceHeads(const LayerWeights& weights);  // q/k norm, then RoPE
  void ProjectAttention(const LayerWeights& weights);
  void FeedForward(const LayerWeights& weights);
  void Multiply(MatrixView<const float> input, std::span<const kernels::MatmulJob> jobs);
  void AddBranch(std::span<const float> post_norm);  // hidden += (normed) branch
  void Norm(MatrixView<const float> in, std::span<const float> weight, MatrixView<float> out);
  void KeepRows(std::span<const int> rows);

  const ModelConfig& config_;
  const Weights& weights_;
  const kernels::KernelTable& kernels_;
  base::ThreadTeam& team_;
  StepLimits limits_;
  kvstore::AttentionParams attention_;
  Rope rope_;
  Activations activations_;
  kvstore::AttentionPlan plan_;
  std::vector<MatrixView<float>> layer_scores_;  // [score requests]
  bool sees_sinks_ = false;                      // some run's queries have left their sinks behind
  std::vector<int> slots_;                       // [rows] where keys are, only if sees_sinks_
  int64_t rows_ = 0;                             // rows the current layer works on
  MatrixView<const float> final_hidden_;
};

}  // namespace quire::model
