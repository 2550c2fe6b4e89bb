#include "kvstore/span_scores.h"

#include <algorithm>

namespace quire::kvstore {

using kernels::kRowTile;
using kernels::kSpan;
using kernels::KvCodec;

SpanScores::SpanScores(const LayerContext& context, const AttentionPlan::Unit& unit, int thread)
    : context_(context),
      unit_(unit),
      run_(context.plan.runs()[unit.run]),
      scratch_(context.plan.scratch(thread)),
      lookup_(context.plan, context.store, context.rows.layer, unit),
      key_codec_(context.layout.codecs(context.rows.layer).keys),
      rotates_keys_(context.layout.format().rotates_keys(context.rows.layer)),
      head_dim_(context.layout.head_dim()),
      block_size_(context.layout.block_size()),
      group_size_(context.plan.group_size()),
      sight_(SightOf(run_, context.list.window)),
      row_tiles_((unit.rows + kRowTile - 1) / kRowTile) {
  // Rows are spread evenly over the register tiles.
  int first = 0;
  for (int i = 0; i < row_tiles_; ++i) {
    tiles_[i].first = first;
    tiles_[i].rows = unit_.rows / row_tiles_ + (i < unit_.rows % row_tiles_ ? 1 : 0);
    first += tiles_[i].rows;
  }
}

// Scales the queries, rotates them as the keys are, and prepares them for the keys' codec and for
// keys that are seen in f16.
void SpanScores::PackQueries() {
  if (packed_ == queries_) return;
  packed_ = queries_;
  const MatrixView<const float>& queries =
      queries_ == Queries::kOwn ? context_.rows.queries : context_.rows.sink_queries;
  const float scale = context_.rows.params.scale;
  for (const RowTile& tile : tiles()) {
    float* scaled = scratch_.part.out;
    for (int r = 0; r < tile.rows; ++r) {
      const float* q = queries.row(BatchRow(tile.first + r)) +
                       static_cast<int64_t>(QHead(tile.first + r)) * head_dim_;
      float* row = scaled + r * head_dim_;
      for (int c = 0; c < head_dim_; ++c) row[c] = q[c] * scale;
      if (rotates_keys_) context_.kernels.rotate(row, head_dim_);
    }
    Prepare(key_codec_, scaled, tile);
    if (key_codec_ != KvCodec::kF16 && scratch_.full_queries != nullptr) {
      Prepare(KvCodec::kF16, scaled, tile);
    }
  }
}

void SpanScores::Prepare(KvCodec codec, const float* scaled, const RowTile& tile) {
  context_.kernels.codec(codec).prepare(
      {scaled, tile.rows, head_dim_, PreparedQueries(codec, tile.first)});
}

std::byte* SpanScores::PreparedQueries(KvCodec codec, int first_row) const {
  std::byte* queries = codec == key_codec_ ? scratch_.queries : scratch_.full_queries;
  return queries + first_row * kernels::PreparedQueryBytes(head_dim_);
}

SpanBlocks SpanScores::Find(int numbered) {
  const bool of_sinks = unit_.seen.is_sinks(numbered);
  const int span = unit_.seen.span_of(numbered);
  queries_ = of_sinks ? Queries::kForSinks : Queries::kOwn;
  int begin = kSpan;
  int end = 0;
  for (int i = 0; i < row_tiles_; ++i) {
    RowTile& tile = tiles_[i];
    tile.begin = tile.common_end = kSpan;
    tile.end = tile.common_begin = 0;
    for (int r = tile.first; r < tile.first + tile.rows; ++r) {
      const SeenSlots slots = SlotsSeen(Position(r), sight_);
      const PositionRange seen = of_sinks ? PositionRange{0, slots.sinks} : slots.recent;
      begin_[r] = std::clamp(seen.begin - span * kSpan, 0, kSpan);
      end_[r] = std::clamp(seen.end - span * kSpan, 0, kSpan);
      tile.common_begin = std::max(tile.common_begin, begin_[r]);
      tile.common_end = std::min(tile.common_end, end_[r]);
      if (begin_[r] >= end_[r]) continue;
      tile.begin = std::min(tile.begin, begin_[r]);
      tile.end = std::max(tile.end, end_[r]);
    }
    begin = std::min(begin, tile.begin);
    end = std::max(end, tile.end);
  }
  begin = begin / block_size_ * block_size_;
  return {(span * kSpan + begin) / block_size_, begin,
          std::max(0, (end - begin + block_size_ - 1) / block_size_)};
}

void SpanScores::Weigh(const SpanBlocks& blocks, const SpanWeights& out, const std::byte* next) {
  PackQueries();
  for (int i = 0; i < blocks.count; ++i) {
    const std::byte* then = i + 1 < blocks.count ? lookup_(blocks.first + i + 1).keys : next;
    ScoreBlock({blocks.first + i, blocks.start + i * block_size_, then}, out.weights);
  }
  for (int r = 0; r < unit_.rows; ++r) {
    kernels::SpanSums sums;
    if (begin_[r] < end_[r]) {
      sums = context_.kernels.softmax(out.weights + r * kSpan, begin_[r], end_[r],
                                      context_.rows.params.softcap);
    }
    out.max[r] = sums.max;
    out.sum[r] = sums.sum;
  }
}

// Scores of all row tiles against one block.
void SpanScores::ScoreBlock(const Block& block, float* scores) {
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
    args.scores = scores + tile.first * kSpan + block.start;
    codec.scores(args);
    if (pieces.sink_keys != nullptr) ScoreSinks(args, pieces.sink_keys, tile.first);
    args.next = nullptr;
  }
}

// Replaces the scores of sinks, which the block's own piece does not hold.
void SpanScores::ScoreSinks(kernels::ScoreTile args, const std::byte* keys, int first_row) {
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

}  // namespace quire::kvstore
