#include "kvstore/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention_kernels.h"
#include "kernels/attention_math.h"
#include "kvstore/block_lookup.h"

namespace quire::kvstore {
namespace {

using kernels::kRowTile;
using kernels::kSpan;
using kernels::KvCodec;
using RowState = AttentionPlan::RowState;

constexpr int kMaxRowTiles = (kRowBlock + kRowTile - 1) / kRowTile;

RowState Advance(RowState state, int64_t rows, int head_dim) {
  return {state.max + rows, state.sum + rows, state.out + rows * head_dim};
}

// Everything that the units of one layer share.
struct LayerContext {
  const kernels::AttentionKernels& kernels;
  AttentionPlan& plan;
  const KvStore& store;
  const AttentionRows& rows;
  const KvLayout& layout;
  const AttentionPlan::UnitList& list;
};

// Computes one unit on one thread.
class UnitRunner {
 public:
  UnitRunner(const LayerContext& context, const AttentionPlan::Unit& unit, int thread)
      : context_(context),
        unit_(unit),
        run_(context.plan.runs()[unit.run]),
        scratch_(context.plan.scratch(thread)),
        lookup_(context.plan, context.store, context.rows.layer, unit),
        codecs_(context.layout.codecs(context.rows.layer)),
        rotates_keys_(context.layout.format().rotates_keys(context.rows.layer)),
        rotates_values_(context.layout.format().rotates_values(context.rows.layer)),
        head_dim_(context.layout.head_dim()),
        block_size_(context.layout.block_size()),
        group_size_(context.plan.group_size()),
        row_tiles_((unit.rows + kRowTile - 1) / kRowTile) {}

  void Run() {
    PackQueries();
    if (unit_.split) return RunSplit(*unit_.split);
    ComputeSpan(unit_.first_span, scratch_.total);
    for (int span = unit_.first_span + 1; span <= unit_.last_span; ++span) {
      ComputeSpan(span, scratch_.part);
      MergeSpan(scratch_.part);
    }
    WriteOut();
  }

 private:
  // Rows of a register tile, and the tokens of the current span that they see: [begin, end) by any
  // of them, [common_begin, common_end) by all.
  struct RowTile {
    int first = 0;
    int rows = 0;
    int begin = 0;
    int end = 0;
    int common_begin = 0;
    int common_end = 0;
  };

  void RunSplit(int split_index) {
    const AttentionPlan::Split& split = context_.list.splits[split_index];
    auto partial = [&](int span) {
      return context_.plan.partial(split.first_partial + (span - split.first_span) * unit_.rows);
    };
    for (int span = unit_.first_span; span <= unit_.last_span; ++span) {
      ComputeSpan(span, partial(span));
    }
    if (!context_.plan.FinishUnit(split_index, split.units)) return;
    std::fill_n(scratch_.total.sum, unit_.rows, 0.0f);
    for (int span = split.first_span; span <= split.last_span; ++span) MergeSpan(partial(span));
    WriteOut();
  }

  int Position(int row) const { return run_.first_position + (unit_.first + row) / group_size_; }

  // Rows are spread evenly over the register tiles; each tile's queries are scaled, rotated as the
  // keys are, and prepared for the keys' codec and for keys that are seen in f16.
  void PackQueries() {
    float scale = context_.rows.params.scale;
    int first = 0;
    for (int i = 0; i < row_tiles_; ++i) {
      int rows = unit_.rows / row_tiles_ + (i < unit_.rows % row_tiles_ ? 1 : 0);
      tiles_[i].first = first;
      tiles_[i].rows = rows;
      float* scaled = scratch_.part.out;  // free until the first span is computed
      for (int r = 0; r < rows; ++r) {
        const float* q = context_.rows.queries.row(BatchRow(first + r)) + BatchColumn(first + r);
        float* row = scaled + r * head_dim_;
        for (int c = 0; c < head_dim_; ++c) row[c] = q[c] * scale;
        if (rotates_keys_) context_.kernels.rotate(row, head_dim_);
      }
      Prepare(codecs_.keys, scaled, tiles_[i]);
      if (codecs_.keys != KvCodec::kF16 && scratch_.full_queries != nullptr) {
        Prepare(KvCodec::kF16, scaled, tiles_[i]);
      }
      first += rows;
    }
  }

  void Prepare(KvCodec codec, const float* scaled, const RowTile& tile) {
    context_.kernels.codec(codec).prepare(
        {scaled, tile.rows, head_dim_, PreparedQueries(codec, tile.first)});
  }

  std::byte* PreparedQueries(KvCodec codec, int first_row) const {
    std::byte* queries = codec == codecs_.keys ? scratch_.queries : scratch_.full_queries;
    return queries + first_row * kernels::PreparedQueryBytes(head_dim_);
  }

  int64_t BatchRow(int row) const { return run_.first_row + (unit_.first + row) / group_size_; }
  int64_t BatchColumn(int row) const {
    int64_t q_head = unit_.kv_head * group_size_ + (unit_.first + row) % group_size_;
    return q_head * head_dim_;
  }

  // Finds what each row sees of the span: tokens [begin_, end_), counted from the span's start.
  void FindVisible(int span) {
    for (int i = 0; i < row_tiles_; ++i) {
      RowTile& tile = tiles_[i];
      tile.begin = tile.common_end = kSpan;
      tile.end = tile.common_begin = 0;
      for (int r = tile.first; r < tile.first + tile.rows; ++r) {
        PositionRange seen = VisibleRange(Position(r), context_.list.window);
        begin_[r] = std::clamp(seen.begin - span * kSpan, 0, kSpan);
        end_[r] = std::clamp(seen.end - span * kSpan, 0, kSpan);
        tile.common_begin = std::max(tile.common_begin, begin_[r]);
        tile.common_end = std::min(tile.common_end, end_[r]);
        if (begin_[r] >= end_[r]) continue;
        tile.begin = std::min(tile.begin, begin_[r]);
        tile.end = std::max(tile.end, end_[r]);
      }
    }
  }

  // Softmax of one span from a fresh state. Rows that see nothing of it get sum 0.
  void ComputeSpan(int span, RowState state) {
    FindVisible(span);
    int begin = kSpan;
    int end = 0;
    for (int i = 0; i < row_tiles_; ++i) {
      begin = std::min(begin, tiles_[i].begin);
      end = std::max(end, tiles_[i].end);
    }
    // Blocks of the span are first_block.. at tokens begin, begin + block_size...
    begin = begin / block_size_ * block_size_;
    int first_block = (span * kSpan + begin) / block_size_;
    int blocks = (end - begin + block_size_ - 1) / block_size_;
    for (int i = 0; i < blocks; ++i) {
      const std::byte* next =
          i + 1 < blocks ? lookup_(first_block + i + 1).keys : lookup_(first_block).values;
      ScoreBlock({first_block + i, begin + i * block_size_, next});
    }
    for (int r = 0; r < unit_.rows; ++r) {
      kernels::SpanSums sums;
      if (begin_[r] < end_[r]) {
        sums = context_.kernels.softmax(scratch_.scores + r * kSpan, begin_[r], end_[r],
                                        context_.rows.params.softcap);
      }
      state.max[r] = sums.max;
      state.sum[r] = sums.sum;
    }
    std::memset(state.out, 0, sizeof(float) * unit_.rows * head_dim_);
    for (int i = 0; i < blocks; ++i) {
      const std::byte* next = i + 1 < blocks           ? lookup_(first_block + i + 1).values
                              : span < unit_.last_span ? lookup_(first_block + blocks).keys
                                                       : nullptr;
      AddBlock({first_block + i, begin + i * block_size_, next}, state.out);
    }
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

  // Scores of all row tiles against one block.
  void ScoreBlock(const Block& block) {
    const BlockPieces pieces = lookup_(block.index);
    kernels::ScoreTile args;
    args.head_dim = head_dim_;
    args.keys = pieces.keys;
    args.next = block.next;
    args.block_size = block_size_;
    const auto& codec = context_.kernels.codec(pieces.key_codec);
    for (int i = 0; i < row_tiles_; ++i) {
      const RowTile& tile = tiles_[i];
      args.begin = std::max(tile.begin - block.start, 0);
      args.end = std::min(tile.end - block.start, block_size_);
      if (args.begin >= args.end) continue;
      args.q = PreparedQueries(pieces.key_codec, tile.first);
      args.rows = tile.rows;
      args.scores = scratch_.scores + tile.first * kSpan + block.start;
      codec.scores(args);
      if (pieces.sink_keys != nullptr) ScoreSinks(args, pieces.sink_keys, tile.first);
      args.next = nullptr;
    }
  }

  // Replaces the scores of sinks, which the block's own piece does not hold.
  void ScoreSinks(kernels::ScoreTile args, const std::byte* keys, int first_row) {
    float scores[kRowTile * kSpan];  // kernels may write the scores of a whole block
    float* to = args.scores;
    args.keys = keys;
    args.next = nullptr;
    args.block_size = kSinkBlock;
    args.end = std::min(args.end, context_.layout.sink_tokens());
    if (args.begin >= args.end) return;
    args.q = PreparedQueries(KvCodec::kF16, first_row);
    args.scores = scores;
    context_.kernels.codec(KvCodec::kF16).scores(args);
    for (int r = 0; r < args.rows; ++r) {
      std::copy(scores + r * kSpan + args.begin, scores + r * kSpan + args.end,
                to + r * kSpan + args.begin);
    }
  }

  // Adds one block's weighted values to the outputs of all row tiles.
  void AddBlock(const Block& block, float* out) {
    const BlockPieces pieces = lookup_(block.index);
    kernels::ValueTile args;
    args.head_dim = head_dim_;
    args.block_size = block_size_;
    if (pieces.sink_values != nullptr) {
      args.values = pieces.sink_values;
      for (int i = 0; i < row_tiles_; ++i) {
        const BlockPart sinks{block.start, 0, context_.layout.sink_tokens(), KvCodec::kF16};
        AddRagged(args, tiles_[i], sinks, out);
      }
    }
    args.values = pieces.values;
    args.next = block.next;
    const int held_begin = pieces.sink_values != nullptr ? context_.layout.sink_tokens() : 0;
    const BlockPart part{block.start, held_begin, block_size_, pieces.value_codec};
    for (int i = 0; i < row_tiles_; ++i) {
      if (kernels::WeighsBlocks(pieces.value_codec)) {
        AddWhole(args, tiles_[i], part, out);
      } else {
        AddPart(args, tiles_[i], part, out);
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
      float* weights = scratch_.scores + r * kSpan;
      const int seen_begin = std::clamp(begin_[r], begin, end);
      const int seen_end = std::clamp(end_[r], seen_begin, end);
      std::fill(weights + begin, weights + seen_begin, 0.0f);
      std::fill(weights + seen_end, weights + end, 0.0f);
    }
    AddTokens(args, {tile.first, tile.rows, part}, out);
  }

  // Tokens that only some rows of the tile see: row by row.
  void AddRagged(kernels::ValueTile& args, const RowTile& tile, const BlockPart& part, float* out) {
    for (int r = tile.first; r < tile.first + tile.rows; ++r) {
      BlockPart seen = part;
      seen.begin = std::max(part.begin, begin_[r] - part.start);
      seen.end = std::min(part.end, end_[r] - part.start);
      if (seen.begin < seen.end) AddTokens(args, {r, 1, seen}, out);
    }
  }

  void AddTokens(kernels::ValueTile& args, const RowsAndTokens& what, float* out) {
    args.weights = scratch_.scores + what.first * kSpan + what.part.start;
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
      float* out = context_.rows.out.row(BatchRow(r)) + BatchColumn(r);
      for (int c = 0; c < head_dim_; ++c) out[c] = total.out[c] * factor;
      if (rotates_values_) context_.kernels.rotate(out, head_dim_);
    }
  }

  const LayerContext& context_;
  const AttentionPlan::Unit& unit_;
  const SequenceRun& run_;
  AttentionPlan::Scratch scratch_;
  BlockLookup lookup_;
  KvCodecs codecs_;
  bool rotates_keys_;
  bool rotates_values_;
  int head_dim_;
  int block_size_;
  int group_size_;
  int row_tiles_;
  RowTile tiles_[kMaxRowTiles];
  int begin_[kRowBlock];
  int end_[kRowBlock];
};

}  // namespace

void Attention(const kernels::KernelTable& kernels, AttentionPlan& plan, const KvStore& store,
               const AttentionRows& rows, base::ThreadTeam& team) {
  QUIRE_CHECK_LE(team.size(), plan.threads());
  const KvLayout& layout = plan.layout();
  QUIRE_CHECK_EQ(rows.queries.cols, static_cast<int64_t>(plan.q_heads()) * layout.head_dim());
  QUIRE_CHECK_EQ(rows.out.cols, rows.queries.cols);
  const AttentionPlan::UnitList& list = plan.units(rows.layer);
  LayerContext context{*kernels.attention, plan, store, rows, layout, list};
  team.ParallelFor(static_cast<int64_t>(list.units.size()), 1,
                   [&](int64_t begin, int64_t end, int thread) {
                     for (int64_t i = begin; i < end; ++i) {
                       UnitRunner(context, list.units[i], thread).Run();
                     }
                   });
}

}  // namespace quire::kvstore
