// Made-up sequences run through a real store, plan and attention: what the tests and the benchmark
// of attention share. Every query, key and value is a function of (seed, sequence, layer, position,
// channel), so two harnesses of the same seed hold the same sequences however they are cut into
// steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "kernels/attention_kernels.h"
#include "kernels/half.h"
#include "kvstore/attention.h"

namespace quire::kvstore::testing {

struct AttentionShape {
  int q_heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  std::vector<int> windows = {0};  // [layers]
  KvFormat format = {};
  float softcap = 0.0f;

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  int group_size() const { return q_heads / kv_heads; }
};

struct HarnessOptions {
  int sequences = 1;
  int max_positions = 0;  // of a sequence
  int max_rows = 0;       // of a step
  int threads = 1;
  uint64_t seed = 1;
};

enum class Stream : uint64_t { kQuery, kKey, kValue, kFrames, kSinkQuery };

inline kernels::KernelTable TableFor(kernels::Isa isa) {
  return {isa, "under test", true, nullptr, kernels::AttentionKernelsFor(isa), nullptr};
}

// x as a codec stores it.
inline float Stored(kernels::KvCodec codec, float x) {
  using kernels::KvCodec;
  if (codec == KvCodec::kF16) return kernels::F32FromF16(kernels::F16FromF32(x));
  if (codec == KvCodec::kBf16) return kernels::F32FromBf16(kernels::Bf16FromF32(x));
  return x;
}

class AttentionHarness {
 public:
  // `rows` next positions of a sequence, and the first of them whose attention is added to the
  // sequence's scores.
  struct Piece {
    int sequence = 0;
    int rows = 0;
    std::optional<int> first_scored = std::nullopt;
    std::optional<int> end_scored = std::nullopt;  // rows, if none is named
  };

  AttentionHarness(const AttentionShape& shape, const HarnessOptions& options)
      : shape_(shape),
        options_(options),
        layout_(MakeLayout(shape)),
        store_(MakeStore()),
        plan_(layout_, {.max_rows = options.max_rows,
                        .max_sequences = options.sequences,
                        .q_heads = shape.q_heads,
                        .threads = options.threads}),
        team_(options.threads),
        lengths_(options.sequences, 0),
        limits_(options.sequences) {
    MakeTables();
    PoisonArena();
    size_t values = static_cast<size_t>(options.max_positions) * q_size();
    outputs_.assign(options.sequences,
                    std::vector<std::vector<float>>(layers(), std::vector<float>(values)));
    size_t sums = static_cast<size_t>(options.max_positions) * shape.kv_heads;
    scores_.assign(options.sequences,
                   std::vector<std::vector<float>>(layers(), std::vector<float>(sums)));
  }

  int layers() const { return static_cast<int>(shape_.windows.size()); }
  int q_size() const { return shape_.q_heads * shape_.head_dim; }
  int kv_size() const { return shape_.kv_heads * shape_.head_dim; }
  int sequences() const { return options_.sequences; }
  int length(int sequence) const { return lengths_[sequence]; }
  const AttentionShape& shape() const { return shape_; }
  const KvLayout& layout() const { return layout_; }
  KvStore& store() { return store_; }
  AttentionPlan& plan() { return plan_; }
  base::ThreadTeam& team() { return team_; }
  FrameId frame(int sequence, int group, int block) const {
    return tables_[sequence][group][block];
  }
  void set_frame(int sequence, int group, int block, FrameId id) {
    tables_[sequence][group][block] = id;
  }
  FrameId spare_frame() const { return spare_; }

  // From now on a sequence's rows see the last `window` slots and the first `sinks`.
  void LimitSight(int sequence, const Sight& limits) { limits_[sequence] = limits; }
  // Of a sequence's rows in a layer.
  Sight SightIn(int sequence, int layer) const {
    return SightOf(Limited({}, sequence), shape_.windows[layer]);
  }

  // [head_dim] of one q head.
  const float* Output(int sequence, int layer, int position, int q_head) const {
    return outputs_[sequence][layer].data() + static_cast<size_t>(position) * q_size() +
           static_cast<size_t>(q_head) * shape_.head_dim;
  }
  const std::vector<float>& Outputs(int sequence, int layer) const {
    return outputs_[sequence][layer];
  }

  // [kv_heads, max_positions]
  std::vector<float>& Scores(int sequence, int layer) { return scores_[sequence][layer]; }
  MatrixView<float> ScoreRows(int sequence, int layer) {
    return {scores_[sequence][layer].data(), shape_.kv_heads, options_.max_positions};
  }

  float Value(Stream stream, int sequence, int layer, int position, int column) const {
    uint64_t place = static_cast<uint64_t>(layer) << 48 | static_cast<uint64_t>(sequence) << 32 |
                     static_cast<uint64_t>(position);
    base::CounterRng rng(options_.seed + static_cast<uint64_t>(stream), place,
                         static_cast<uint64_t>(column));
    float x = static_cast<float>(rng.NextUnit() * 2.0 - 1.0);
    // A few channels stand out, as real keys' do: softmax is then far from uniform.
    return x * (column % 16 == 3 ? 8.0f : 1.5f);
  }

  // One forward step of attention over all layers.
  void Step(const kernels::KernelTable& kernels, const std::vector<Piece>& pieces) {
    BuildRuns(pieces);
    std::vector<ScoreRequest> requests;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].first_scored)
        requests.push_back({static_cast<int>(i), *pieces[i].first_scored,
                            pieces[i].end_scored.value_or(pieces[i].rows)});
    }
    plan_.Build(runs_, requests);
    for (int layer = 0; layer < layers(); ++layer) {
      std::vector<MatrixView<float>> scores;
      for (const ScoreRequest& request : requests) {
        scores.push_back(ScoreRows(pieces[request.run].sequence, layer));
      }
      FillRows(pieces, layer);
      WriteKv(kernels, plan_, store_,
              {layer, {k_.data(), rows_, kv_size()}, {v_.data(), rows_, kv_size()}}, team_);
      Attention(kernels, plan_, store_,
                {layer,
                 {q_.data(), rows_, q_size()},
                 {out_.data(), rows_, q_size()},
                 {shape_.scale(), shape_.softcap},
                 scores,
                 {sink_q_.data(), rows_, q_size()}},
                team_);
      TakeOutputs(pieces, layer);
    }
    for (const Piece& piece : pieces) lengths_[piece.sequence] += piece.rows;
  }

  // Cuts `total` positions of a sequence into steps of `chunk`; all rows may be scored.
  void Prefill(const kernels::KernelTable& kernels, int sequence, int total, int chunk,
               std::optional<int> first_scored = std::nullopt) {
    for (int done = 0; done < total; done += chunk) {
      Step(kernels, {{sequence, std::min(chunk, total - done), first_scored}});
    }
  }

  // Replaces the values of one position in all layers; takes effect when it is written.
  void PoisonPosition(int sequence, int position) { poisoned_ = {sequence, position}; }

 private:
  static KvLayout MakeLayout(const AttentionShape& shape) {
    return std::move(
               KvLayout::Create({shape.kv_heads, shape.head_dim, shape.windows}, shape.format))
        .value();
  }

  int BlocksPerSequence() const {
    return (options_.max_positions + layout_.block_size() - 1) / layout_.block_size();
  }

  KvStore MakeStore() const {
    const int per_group = BlocksPerSequence() * (1 + layout_.tail_frames()) + layout_.sink_frames();
    const size_t frames =
        1 + static_cast<size_t>(options_.sequences) * layout_.group_count() * per_group;
    return std::move(KvStore::Create(layout_, frames * layout_.frame_bytes())).value();
  }

  // Frames in random order: block tables are scattered over the arena.
  void MakeTables() {
    std::vector<FrameId> frames;
    for (int i = 0; i < store_.frames_total(); ++i) frames.push_back({i});
    base::CounterRng rng(options_.seed, static_cast<uint64_t>(Stream::kFrames),
                         static_cast<uint64_t>(options_.threads));
    for (size_t i = frames.size() - 1; i > 0; --i) {
      std::swap(frames[i], frames[rng.NextBelow(i + 1)]);
    }
    spare_ = frames.back();
    auto next = frames.begin();
    auto take = [&](int count) {
      next += count;
      return std::vector<FrameId>(next - count, next);
    };
    tables_.resize(options_.sequences);
    tails_.resize(options_.sequences);
    sinks_.resize(options_.sequences);
    for (int i = 0; i < options_.sequences; ++i) {
      for (int group = 0; group < layout_.group_count(); ++group) {
        tables_[i].push_back(take(BlocksPerSequence()));
        tails_[i].push_back(take(BlocksPerSequence() * layout_.tail_frames()));
        sinks_[i].push_back(take(layout_.sink_frames()));
      }
    }
  }

  // All ones: NaN in every codec.
  void PoisonArena() { std::memset(store_.frame({0}), 0xff, store_.arena_bytes()); }

  // Tables hold only what the step needs; blocks that left a window are poisoned.
  void BuildRuns(const std::vector<Piece>& pieces) {
    runs_.clear();
    block_tables_.assign(pieces.size(), {});
    tail_blocks_.assign(pieces.size(), {});
    tail_frames_.assign(pieces.size() * layout_.group_count(), {});
    rows_ = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const int sequence = pieces[i].sequence;
      const int position = lengths_[sequence];
      const int end = position + pieces[i].rows;
      FindTailBlocks(position, end, tail_blocks_[i]);
      for (int group = 0; group < layout_.group_count(); ++group) {
        block_tables_[i].push_back(TableOf(sequence, group, position, SealedEnd(end)));
        std::vector<FrameId>& tail = tail_frames_[i * layout_.group_count() + group];
        for (int block : tail_blocks_[i]) {
          const auto first = tails_[sequence][group].begin() + block * layout_.tail_frames();
          tail.insert(tail.end(), first, first + layout_.tail_frames());
        }
        block_tables_[i].back().tail = {tail_blocks_[i], tail};
      }
      for (int frame = 0; frame < layout_.sink_frames(); ++frame) {
        for (int group = 0; group < layout_.group_count(); ++group) {
          block_tables_[i].push_back({0, {sinks_[sequence][group].data() + frame, 1}});
        }
      }
      runs_.push_back(Limited({rows_, pieces[i].rows, position, block_tables_[i]}, sequence));
      rows_ += pieces[i].rows;
    }
    q_.resize(static_cast<size_t>(rows_) * q_size());
    sink_q_.resize(q_.size());
    out_.resize(q_.size());
    k_.resize(static_cast<size_t>(rows_) * kv_size());
    v_.resize(k_.size());
  }

  SequenceRun Limited(SequenceRun run, int sequence) const {
    run.window = limits_[sequence].window;
    run.sinks = limits_[sequence].sinks;
    run.evicted = limits_[sequence].evicted;
    return run;
  }

  // Positions whose residual group is complete at `end`.
  int SealedEnd(int end) const {
    const int residual = layout_.residual_tokens();
    return residual == 0 ? end : end / residual * residual;
  }

  // The blocks that a step over [position, end) finds or leaves in tail frames.
  void FindTailBlocks(int position, int end, std::vector<int>& blocks) const {
    if (!layout_.has_tail()) return;
    const int n = layout_.block_size();
    const int begun = (position + n - 1) / n;
    for (int b = SealedEnd(position) / n; b < begun; ++b) blocks.push_back(b);
    for (int b = std::max(begun, SealedEnd(end) / n); b * n < end; ++b) blocks.push_back(b);
  }

  BlockTable TableOf(int sequence, int group, int position, int sealed_end) {
    const int n = layout_.block_size();
    const Sight sight = SightOf(Limited({}, sequence), layout_.window(group));
    const int left_behind = SlotsSeen(position, sight).recent.begin / n;
    const int first = sight.sinks > 0 ? 0 : left_behind;
    const int end = (sealed_end + n - 1) / n;
    std::vector<FrameId>& frames = tables_[sequence][group];
    for (int block = (sight.sinks + n - 1) / n; block < left_behind; ++block) {
      std::memset(store_.frame(frames[block]), 0xff, layout_.frame_bytes());
      for (int i = 0; i < layout_.tail_frames(); ++i) {
        const FrameId tail = tails_[sequence][group][block * layout_.tail_frames() + i];
        std::memset(store_.frame(tail), 0xff, layout_.frame_bytes());
      }
    }
    return {first, std::span<const FrameId>(frames.data() + first, std::max(0, end - first))};
  }

  void FillRows(const std::vector<Piece>& pieces, int layer) {
    size_t row = 0;
    for (const Piece& piece : pieces) {
      for (int i = 0; i < piece.rows; ++i, ++row) {
        int sequence = piece.sequence;
        int position = lengths_[sequence] + i;
        for (int c = 0; c < q_size(); ++c) {
          q_[row * q_size() + c] = Value(Stream::kQuery, sequence, layer, position, c);
          sink_q_[row * q_size() + c] = Value(Stream::kSinkQuery, sequence, layer, position, c);
        }
        bool poisoned = sequence == poisoned_.sequence && position == poisoned_.rows;
        for (int c = 0; c < kv_size(); ++c) {
          k_[row * kv_size() + c] = poisoned ? std::numeric_limits<float>::quiet_NaN()
                                             : Value(Stream::kKey, sequence, layer, position, c);
          v_[row * kv_size() + c] = poisoned ? std::numeric_limits<float>::quiet_NaN()
                                             : Value(Stream::kValue, sequence, layer, position, c);
        }
      }
    }
  }

  void TakeOutputs(const std::vector<Piece>& pieces, int layer) {
    const float* from = out_.data();
    for (const Piece& piece : pieces) {
      size_t count = static_cast<size_t>(piece.rows) * q_size();
      float* to = outputs_[piece.sequence][layer].data() +
                  static_cast<size_t>(lengths_[piece.sequence]) * q_size();
      std::memcpy(to, from, count * sizeof(float));
      from += count;
    }
  }

  AttentionShape shape_;
  HarnessOptions options_;
  KvLayout layout_;
  KvStore store_;
  AttentionPlan plan_;
  base::ThreadTeam team_;
  std::vector<int> lengths_;                               // [sequences]
  std::vector<Sight> limits_;                              // [sequences]
  std::vector<std::vector<std::vector<FrameId>>> tables_;  // [sequences, groups, blocks]
  std::vector<std::vector<std::vector<FrameId>>> tails_;   // [.., .., blocks * tail_frames]
  std::vector<std::vector<std::vector<FrameId>>> sinks_;   // [.., .., sink_frames]
  FrameId spare_;                                          // in no table
  std::vector<std::vector<int>> tail_blocks_;              // [pieces]
  std::vector<std::vector<FrameId>> tail_frames_;          // [pieces * groups]
  std::vector<std::vector<std::vector<float>>> outputs_;  // [sequences, layers, positions * q_size]
  std::vector<std::vector<std::vector<float>>> scores_;   // [.., .., kv_heads * max_positions]
  std::vector<std::vector<BlockTable>> block_tables_;     // [pieces, groups]
  std::vector<SequenceRun> runs_;
  std::vector<float> q_, sink_q_, k_, v_, out_;
  int rows_ = 0;
  Piece poisoned_{-1, -1};  // sequence and position
};

}  // namespace quire::kvstore::testing
