#include "kvstore/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention_math.h"
#include "kvstore/attention_scores.h"
#include "kvstore/span_scores.h"

namespace quire::kvstore {
namespace {

using kernels::kSpan;
using kernels::KvCodec;
using RowState = AttentionPlan::RowState;

RowState Advance(RowState state, int64_t rows, int head_dim) {
  return {state.max + rows, state.sum + rows, state.out + rows * head_dim};
}

// Computes one unit on one thread.
class UnitRunner {
 public:
  UnitRunner(const LayerContext& context, const AttentionPlan::Unit& unit, int thread)
      : context_(context),
        unit_(unit),
        scratch_(context.plan.scratch(thread)),
        scores_(context, unit, thread),
        rotates_values_(context.layout.format().rotates_values(context.rows.layer)),
        head_dim_(context.layout.head_dim()),
        block_size_(context.layout.block_size()) {}

  void Run() {
    if (unit_.split) return RunSplit(*unit_.split);
    ComputeSpan(unit_.first_span, scratch_.total);
    for (int span = unit_.first_span + 1; span <= unit_.last_span; ++span) {
      ComputeSpan(span, scratch_.part);
      MergeSpan(scratch_.part);
    }
    Finish();
  }

 private:
  void RunSplit(int split_index) {
    const AttentionPlan::Split& split = context_.list.splits[split_index];
    auto partial = [&](int span) {
      return context_.plan.partial(split.first_partial + (span - unit_.seen.first) * unit_.rows);
    };
    for (int span = unit_.first_span; span <= unit_.last_span; ++span) {
      ComputeSpan(span, partial(span));
    }
    if (!context_.plan.FinishUnit(split_index, split.units)) return;
    std::fill_n(scratch_.total.sum, unit_.rows, 0.0f);
    for (int span = unit_.seen.first; span <= unit_.seen.last; ++span) MergeSpan(partial(span));
    Finish();
  }

  // Once all spans are merged.
  void Finish() {
    WriteOut();
    const std::optional<int> request = context_.plan.request_of(unit_.run);
    if (!request) return;
    if (unit_.first_kept) {
      AddKeptScores(context_, unit_, scores_, scratch_.total);
    } else {
      StoreTotals(context_.plan.requests()[*request].first_row);
    }
  }

  // For the second pass over keys.
  void StoreTotals(int first_row) {
    const int first = std::max(0, first_row * context_.plan.group_size() - unit_.first);
    for (int r = first; r < unit_.rows; ++r) {
      context_.plan.row_total(scores_.BatchRow(r), scores_.QHead(r)) = {scratch_.total.max[r],
                                                                        scratch_.total.sum[r]};
    }
  }

  // Softmax of one span from a fresh state. Rows that see nothing of it get sum 0.
  void ComputeSpan(int span, RowState state) {
    const BlockLookup& lookup = scores_.lookup();
    const SpanBlocks blocks = scores_.Find(span);
    const std::byte* first_values = blocks.count > 0 ? lookup(blocks.first).values : nullptr;
    weights_ = scratch_.scores;
    if (unit_.first_kept) {
      const AttentionPlan::KeptSpan kept = context_.plan.kept(unit_, span);
      weights_ = kept.weights;
      scores_.Weigh(blocks, {weights_, state.max, state.sum}, first_values);
      std::copy_n(state.max, unit_.rows, kept.max);
    } else {
      scores_.Weigh(blocks, {weights_, state.max, state.sum}, first_values);
    }
    std::memset(state.out, 0, sizeof(float) * unit_.rows * head_dim_);
    for (int i = 0; i < blocks.count; ++i) {
      const std::byte* next = i + 1 < blocks.count ? lookup(blocks.first + i + 1).values
                              : GoesOnBehind(span) ? lookup(blocks.first + blocks.count).keys
                                                   : nullptr;
      AddBlock({blocks.first + i, blocks.start + i * block_size_, next}, state.out);
    }
  }

  // Whether the unit's next span is the sequence's next one.
  bool GoesOnBehind(int span) const {
    return span < unit_.last_span && unit_.seen.is_sinks(span) == unit_.seen.is_sinks(span + 1);
  }

  struct Block {
    int index;              // in the sequence
    int start;              // its first token, counted from the span's start
    const std::byte* next;  // read after it, or null
  };

  // Some tokens of a block, and the codec their values are in.
  struct BlockPart {
    int start;  // of the block in the span
    int begin;  // tokens of the block
    int end;
    KvCodec codec;
  };
  struct RowsAndTokens {
    int first;
    int rows;
    BlockPart part;
  };

  // Adds one block's weighted values to the outputs of all row tiles.
  void AddBlock(const Block& block, float* out) {
    const BlockPieces pieces = scores_.lookup()(block.index);
    kernels::ValueTile args;
    args.head_dim = head_dim_;
    args.block_size = block_size_;
    if (pieces.sink_values != nullptr) {
      args.values = pieces.sink_values;
      for (const RowTile& tile : scores_.tiles()) {
        const BlockPart sinks{block.start, 0, context_.layout.sink_tokens(), KvCodec::kF16};
        AddRagged(args, tile, sinks, out);
      }
    }
    args.values = pieces.values;
    args.next = block.next;
    const int held_begin = pieces.sink_values != nullptr ? context_.layout.sink_tokens() : 0;
    const BlockPart part{block.start, held_begin, block_size_, pieces.value_codec};
    for (const RowTile& tile : scores_.tiles()) {
      if (kernels::WeighsBlocks(pieces.value_codec)) {
        AddWhole(args, tile, part, out);
      } else {
        AddPart(args, tile, part, out);
      }
    }
  }

  // Tokens that all rows see together, the others row by row.
  void AddPart(kernels::ValueTile& args, const RowTile& tile, const BlockPart& part, float* out) {
    const int common_begin = std::clamp(tile.common_begin - part.start, part.begin, part.end);
    const int common_end = std::clamp(tile.common_end - part.start, part.begin, part.end);
    if (common_begin >= common_end) return AddRagged(args, tile, part, out);
    BlockPart piece = part;
    piece.end = common_begin;
    AddRagged(args, tile, piece, out);
    piece.begin = common_begin;
    piece.end = common_end;
    AddTokens(args, {tile.first, tile.rows, piece}, out);
    piece.begin = common_end;
    piece.end = part.end;
    AddRagged(args, tile, piece, out);
  }

  // All rows at once; a token that a row does not see weighs nothing.
  void AddWhole(kernels::ValueTile& args, const RowTile& tile, BlockPart part, float* out) {
    part.begin = std::max(part.begin, tile.begin - part.start);
    part.end = std::min(part.end, tile.end - part.start);
    if (part.begin >= part.end) return;
    const int begin = part.start + part.begin;
    const int end = part.start + part.end;
    for (int r = tile.first; r < tile.first + tile.rows; ++r) {
      float* weights = weights_ + r * kSpan;
      const int seen_begin = std::clamp(scores_.begin(r), begin, end);
      const int seen_end = std::clamp(scores_.end(r), seen_begin, end);
      std::fill(weights + begin, weights + seen_begin, 0.0f);
      std::fill(weights + seen_end, weights + end, 0.0f);
    }
    AddTokens(args, {tile.first, tile.rows, part}, out);
  }

  // Tokens that only some rows of the tile see: row by row.
  void AddRagged(kernels::ValueTile& args, const RowTile& tile, const BlockPart& part, float* out) {
    for (int r = tile.first; r < tile.first + tile.rows; ++r) {
      BlockPart seen = part;
      seen.begin = std::max(part.begin, scores_.begin(r) - part.start);
      seen.end = std::min(part.end, scores_.end(r) - part.start);
      if (seen.begin < seen.end) AddTokens(args, {r, 1, seen}, out);
    }
  }

  void AddTokens(kernels::ValueTile& args, const RowsAndTokens& what, float* out) {
    args.weights = weights_ + what.first * kSpan + what.part.start;
    args.rows = what.rows;
    args.begin = what.part.begin;
    args.end = what.part.end;
    args.out = out + what.first * head_dim_;
    context_.kernels.codec(what.part.codec).add_values(args);
    args.next = nullptr;
  }

  // Merges the next span's result into scratch_.total.
  void MergeSpan(RowState part) {
    RowState total = scratch_.total;
    for (int r = 0; r < unit_.rows; ++r) {
      if (part.sum[r] == 0.0f) continue;  // saw nothing of the span
      RowState from = Advance(part, r, head_dim_);
      RowState to = Advance(total, r, head_dim_);
      if (*to.sum == 0.0f) {
        *to.max = *from.max;
        *to.sum = *from.sum;
        std::memcpy(to.out, from.out, sizeof(float) * head_dim_);
        continue;
      }
      float max = std::max(*to.max, *from.max);
      float to_factor = kernels::ExpNonPositive(*to.max - max);
      float from_factor = kernels::ExpNonPositive(*from.max - max);
      *to.max = max;
      *to.sum = std::fma(*from.sum, from_factor, *to.sum * to_factor);
      context_.kernels.merge(to.out, from.out, head_dim_, to_factor, from_factor);
    }
  }

  void WriteOut() {
    for (int r = 0; r < unit_.rows; ++r) {
      RowState total = Advance(scratch_.total, r, head_dim_);
      float factor = 1.0f / *total.sum;
      float* out = context_.rows.out.row(scores_.BatchRow(r)) +
                   static_cast<int64_t>(scores_.QHead(r)) * head_dim_;
      for (int c = 0; c < head_dim_; ++c) out[c] = total.out[c] * factor;
      if (rotates_values_) context_.kernels.rotate(out, head_dim_);
    }
  }

  const LayerContext& context_;
  const AttentionPlan::Unit& unit_;
  AttentionPlan::Scratch scratch_;
  SpanScores scores_;
  float* weights_ = nullptr;  // [rows, kSpan] of the span that is being computed
  bool rotates_values_;
  int head_dim_;
  int block_size_;
};

// Every request has room for all slots its rows see.
void CheckScores(const AttentionPlan& plan, const AttentionRows& rows) {
  QUIRE_CHECK_EQ(rows.scores.size(), plan.requests().size());
  for (size_t i = 0; i < rows.scores.size(); ++i) {
    const SequenceRun& run = plan.runs()[plan.requests()[i].run];
    QUIRE_CHECK_EQ(rows.scores[i].rows, plan.layout().kv_heads());
    QUIRE_CHECK_GE(rows.scores[i].cols, run.first_position + run.rows);
  }
}

}  // namespace

void Attention(const kernels::KernelTable& kernels, AttentionPlan& plan, const KvStore& store,
               const AttentionRows& rows, base::ThreadTeam& team) {
  QUIRE_CHECK_LE(team.size(), plan.threads());
  const KvLayout& layout = plan.layout();
  QUIRE_CHECK_EQ(rows.queries.cols, static_cast<int64_t>(plan.q_heads()) * layout.head_dim());
  QUIRE_CHECK_EQ(rows.out.cols, rows.queries.cols);
  for (const SequenceRun& run : plan.runs()) {
    if (run.sinks > 0) QUIRE_CHECK_EQ(rows.sink_queries.cols, rows.queries.cols);
  }
  CheckScores(plan, rows);
  const AttentionPlan::UnitList& list = plan.units(rows.layer);
  LayerContext context{*kernels.attention, plan, store, rows, layout, list};
  team.ParallelFor(static_cast<int64_t>(list.units.size()), 1,
                   [&](int64_t begin, int64_t end, int thread) {
                     for (int64_t i = begin; i < end; ++i) {
                       UnitRunner(context, list.units[i], thread).Run();
                     }
                   });
  if (list.score_units.empty()) return;
  team.ParallelFor(static_cast<int64_t>(list.score_units.size()), 1,
                   [&](int64_t begin, int64_t end, int thread) {
                     for (int64_t i = begin; i < end; ++i) {
                       AddScoresAgain(context, list.score_units[i], thread);
                     }
                   });
}

}  // namespace quire::kvstore
