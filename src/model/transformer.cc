#include "model/transformer.h"

#include <algorithm>

#include "kernels/dequantize.h"
#include "kernels/matmul.h"
#include "kernels/vector_kernels.h"
#include "kvstore/attention.h"

namespace quire::model {

using kernels::ActivationForm;
using kernels::ActivationFormFor;
using kernels::MatmulJob;

namespace {

// Rows a thread takes at a time in work that goes row by row: a decode step stays on one thread,
// where a fork would cost more than it saves.
constexpr int64_t kRowGrain = 4;

const float* BiasOrNull(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

}  // namespace

Transformer::Transformer(const TransformerParts& parts, const kvstore::KvLayout& layout,
                         const StepLimits& limits)
    : config_(parts.config),
      weights_(parts.weights),
      kernels_(parts.kernels),
      team_(parts.team),
      limits_(limits),
      attention_{parts.config.attention_scale, parts.config.attention_softcap},
      rope_(parts.config.rope, limits.max_positions),
      activations_(parts.config, limits),
      plan_(layout, {.max_rows = limits.rows,
                     .max_sequences = limits.sequences,
                     .q_heads = parts.config.q_heads,
                     .threads = parts.team.size()}) {
  layer_scores_.reserve(limits.sequences);
  slots_.reserve(limits.rows);
}

void Transformer::Forward(const Batch& batch, kvstore::KvStore& store) {
  rows_ = static_cast<int64_t>(batch.tokens.size());
  QUIRE_CHECK_LE(rows_, limits_.rows);
  plan_.Build(batch.runs, batch.score_requests);
  PrepareAngles(batch.positions, PositionAngles());
  PrepareSinkAngles(batch.runs);
  Embed(batch.tokens);  // hidden: [rows, hidden_size]

  for (int layer = 0; layer < config_.layers; ++layer) {
    const LayerWeights& weights = weights_.layers[layer];
    ProjectQkv(weights);
    PlaceHeads(weights);
    MatrixView<const float> sink_queries;
    if (sees_sinks_) sink_queries = activations_.sink_q(rows_);
    WriteKv(kernels_, plan_, store, {layer, activations_.k(rows_), activations_.v(rows_)}, team_);
    Attention(kernels_, plan_, store,
              {layer, activations_.q(rows_), activations_.attended(rows_), attention_,
               ScoresOfLayer(batch, layer), sink_queries},
              team_);
    // Beyond the last attention a row matters only if its logits are wanted.
    if (layer == config_.layers - 1) KeepRows(batch.logit_rows);
    if (rows_ == 0) break;
    ProjectAttention(weights);
    AddBranch(weights.post_attention_norm);
    FeedForward(weights);
    AddBranch(weights.post_ffn_norm);
  }

  Norm(activations_.hidden(rows_), weights_.output_norm, activations_.normed(rows_));
  final_hidden_ = activations_.normed(rows_);
}

std::span<const MatrixView<float>> Transformer::ScoresOfLayer(const Batch& batch, int layer) {
  layer_scores_.clear();
  for (const MatrixView<float>& scores : batch.scores) {
    layer_scores_.push_back(
        scores.row_range(static_cast<int64_t>(layer) * config_.kv_heads, config_.kv_heads));
  }
  return layer_scores_;
}

MatrixView<const float> Transformer::Logits(int first, int count) {
  QUIRE_CHECK_LE(count, limits_.logit_rows);
  MatrixView<float> logits = activations_.logits(count);  // [count, vocab_size]
  const MatmulJob job{&weights_.output, logits};
  Multiply(final_hidden_.row_range(first, count), {&job, 1});
  if (config_.final_softcap != 0.0f) {
    team_.ParallelFor(count, 1, [&](int64_t begin, int64_t end, int) {
      kernels_.vector->softcap(logits.row_range(begin, end - begin), config_.final_softcap);
    });
  }
  return logits;
}

void Transformer::Embed(std::span<const TokenId> tokens) {
  const StoredTensor& table = weights_.token_embedding;  // [vocab_size, hidden_size]
  MatrixView<float> hidden = activations_.hidden(rows_);
  team_.ParallelFor(rows_, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      kernels::DequantizeRow(table.type, table.row(tokens[row]), table.cols, hidden.row(row));
    }
    if (config_.embedding_scale != 1.0f) {
      kernels_.vector->scale(hidden.row_range(begin, end - begin), config_.embedding_scale);
    }
  });
}

void Transformer::PrepareAngles(std::span<const int> positions, const Angles& angles) {
  const MatrixView<float> cos = angles.cos;
  const MatrixView<float> sin = angles.sin;
  team_.ParallelFor(rows_, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      rope_.Angles(positions[row], {cos.row(row), static_cast<size_t>(cos.cols)},
                   {sin.row(row), static_cast<size_t>(sin.cols)});
    }
  });
}

// A query meets sinks as if the tokens between had never been: at the distance of those it sees
// (StreamingLLM, 2309.17453).
void Transformer::PrepareSinkAngles(std::span<const kvstore::SequenceRun> runs) {
  sees_sinks_ = std::ranges::any_of(runs, [](const auto& run) { return run.sinks > 0; });
  if (!sees_sinks_) return;
  slots_.assign(rows_, 0);
  for (const kvstore::SequenceRun& run : runs) {
    const int furthest =
        run.window > 0 ? run.sinks + run.window - 1 : run.first_position + run.rows;
    for (int i = 0; i < run.rows; ++i) {
      slots_[run.first_row + i] = std::min(run.first_position + i, furthest);
    }
  }
  PrepareAngles(slots_, SinkAngles());
}

void Transformer::ProjectQkv(const LayerWeights& weights) {
  Norm(activations_.hidden(rows_), weights.attention_norm, activations_.normed(rows_));
  const MatmulJob jobs[] = {
      {&weights.q, activations_.q(rows_), BiasOrNull(weights.q_bias)},  // [rows, q_heads*head_dim]
      {&weights.k, activations_.k(rows_), BiasOrNull(weights.k_bias)},  // [rows, kv_heads*head_dim]
      {&weights.v, activations_.v(rows_), BiasOrNull(weights.v_bias)}};
  Multiply(activations_.normed(rows_), jobs);
}

void Transformer::PlaceHeads(const LayerWeights& weights) {
  const MatrixView<float> q = activations_.q(rows_);
  const MatrixView<float> k = activations_.k(rows_);
  const Angles angles = PositionAngles();
  const auto rotate = config_.rope.pairing == RopePairing::kHalves ? kernels_.vector->rope_halves
                                                                   : kernels_.vector->rope_adjacent;
  team_.ParallelFor(rows_, kRowGrain, [&](int64_t begin, int64_t end, int) {
    const int64_t count = end - begin;
    const MatrixView<float> q_part = q.row_range(begin, count);
    const MatrixView<float> k_part = k.row_range(begin, count);
    if (config_.qk_norm) {
      kernels_.vector->rms_norm_heads(q_part, weights.q_norm.data(), config_.head_dim,
                                      config_.norm_eps);
      kernels_.vector->rms_norm_heads(k_part, weights.k_norm.data(), config_.head_dim,
                                      config_.norm_eps);
    }
    const auto of_rows = [&](const Angles& all) -> kernels::RopeRows {
      return {all.cos.row_range(begin, count), all.sin.row_range(begin, count), config_.head_dim};
    };
    if (sees_sinks_) {
      const MatrixView<float> sink_part = activations_.sink_q(rows_).row_range(begin, count);
      std::copy_n(q_part.row(0), count * q_part.cols, sink_part.row(0));
      rotate(sink_part, of_rows(SinkAngles()));
    }
    rotate(q_part, of_rows(angles));
    rotate(k_part, of_rows(angles));
  });
}

void Transformer::ProjectAttention(const LayerWeights& weights) {
  const MatmulJob job{&weights.o, activations_.branch(rows_), BiasOrNull(weights.o_bias)};
  Multiply(activations_.attended(rows_), {&job, 1});
}

void Transformer::FeedForward(const LayerWeights& weights) {
  const MatrixView<float> gate = activations_.gate(rows_);  // [rows, ffn_size]
  const MatrixView<float> up = activations_.up(rows_);      // [rows, ffn_size]
  Norm(activations_.hidden(rows_), weights.ffn_norm, activations_.normed(rows_));
  const MatmulJob jobs[] = {{&weights.gate, gate, BiasOrNull(weights.gate_bias)},
                            {&weights.up, up, BiasOrNull(weights.up_bias)}};
  Multiply(activations_.normed(rows_), jobs);

  const auto activate = config_.activation == Activation::kSilu ? kernels_.vector->silu_mul
                                                                : kernels_.vector->gelu_tanh_mul;
  team_.ParallelFor(rows_, kRowGrain, [&](int64_t begin, int64_t end, int) {
    const int64_t count = end - begin;
    activate(gate.row_range(begin, count), up.row_range(begin, count),
             gate.row_range(begin, count));
  });

  const MatmulJob down{&weights.down, activations_.branch(rows_), BiasOrNull(weights.down_bias)};
  Multiply(gate, {&down, 1});
}

void Transformer::Multiply(MatrixView<const float> input, std::span<const MatmulJob> jobs) {
  ActivationForm form = ActivationForm::kFloat;
  for (const MatmulJob& job : jobs) {
    if (ActivationFormFor(job.weights->type()) == ActivationForm::kQuantized) {
      form = ActivationForm::kQuantized;
    }
  }
  activations_.packed().Set(kernels_, input, form, team_);
  Matmul(kernels_, activations_.packed(), jobs, team_);
}

void Transformer::AddBranch(std::span<const float> post_norm) {
  const MatrixView<float> hidden = activations_.hidden(rows_);
  const MatrixView<float> branch = activations_.branch(rows_);
  if (!post_norm.empty()) Norm(branch, post_norm, branch);
  team_.ParallelFor(rows_, kRowGrain, [&](int64_t begin, int64_t end, int) {
    kernels_.vector->add(hidden.row_range(begin, end - begin),
                         branch.row_range(begin, end - begin));
  });
}

void Transformer::Norm(MatrixView<const float> in, std::span<const float> weight,
                       MatrixView<float> out) {
  team_.ParallelFor(in.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    kernels_.vector->rms_norm(in.row_range(begin, end - begin), weight.data(), config_.norm_eps,
                              out.row_range(begin, end - begin));
  });
}

void Transformer::KeepRows(std::span<const int> rows) {
  const MatrixView<float> hidden = activations_.hidden(rows_);
  const MatrixView<float> attended = activations_.attended(rows_);
  for (size_t kept = 0; kept < rows.size(); ++kept) {
    // Ascending rows: the source is never a row that was already overwritten.
    QUIRE_DCHECK(static_cast<size_t>(rows[kept]) >= kept);
    std::copy_n(hidden.row(rows[kept]), hidden.cols, hidden.row(kept));
    std::copy_n(attended.row(rows[kept]), attended.cols, attended.row(kept));
  }
  rows_ = static_cast<int64_t>(rows.size());
}

}  // namespace quire::model
