// SpanScores: what the rows of one work unit weigh the tokens of one span with, before spans are
// merged. Both passes over keys use it, attention's own (attention.cc) and the one that adds up
// scores (attention_scores.h), so that both find the same weights to the last bit.
#pragma once

#include <optional>
#include <span>

#include "kernels/attention_kernels.h"
#include "kvstore/attention.h"
#include "kvstore/block_lookup.h"

namespace quire::kvstore {

// Everything that the units of one layer share.
struct LayerContext {
  const kernels::AttentionKernels& kernels;
  AttentionPlan& plan;
  const KvStore& store;
  const AttentionRows& rows;
  const KvLayout& layout;
  const AttentionPlan::UnitList& list;
};

// Rows of a register tile, and the tokens of a span that they see, counted from its start: [begin,
// end) by any of them, [common_begin, common_end) by all.
struct RowTile {
  int first = 0;
  int rows = 0;
  int begin = 0;
  int end = 0;
  int common_begin = 0;
  int common_end = 0;
};

// Blocks of a span that some row sees: `count` of them, `first` in the sequence, from token `start`
// of the span on.
struct SpanBlocks {
  int first = 0;
  int start = 0;
  int count = 0;
};

// Weights of a span, relative to each row's largest score there. Rows that see nothing of it have
// sum 0.
struct SpanWeights {
  float* weights = nullptr;  // [rows, kernels::kSpan]
  float* max = nullptr;      // [rows]
  float* sum = nullptr;      // [rows]
};

class SpanScores {
 public:
  // Of rows [unit.first, unit.first + unit.rows) of the unit's run and KV head, on one thread.
  SpanScores(const LayerContext& context, const AttentionPlan::Unit& unit, int thread);

  // Finds what each row sees of a span, numbered as in unit.seen.
  SpanBlocks Find(int span);

  // Weights of the span found last. `next` will be read afterwards, or null. What lies in the
  // scratch's part.out is lost.
  void Weigh(const SpanBlocks& blocks, const SpanWeights& out, const std::byte* next);

  // As found last: the row tiles, and tokens [begin, end) that a row sees.
  std::span<const RowTile> tiles() const { return {tiles_, static_cast<size_t>(row_tiles_)}; }
  int begin(int row) const { return begin_[row]; }
  int end(int row) const { return end_[row]; }

  const BlockLookup& lookup() const { return lookup_; }

  int Position(int row) const { return run_.first_position + (unit_.first + row) / group_size_; }
  int64_t BatchRow(int row) const { return run_.first_row + (unit_.first + row) / group_size_; }
  int QHead(int row) const {
    return unit_.kv_head * group_size_ + (unit_.first + row) % group_size_;
  }

 private:
  static constexpr int kMaxRowTiles = (kRowBlock + kernels::kRowTile - 1) / kernels::kRowTile;

  // A row's queries: for recent slots, and for sinks that its window has left behind.
  enum class Queries { kOwn, kForSinks };

  struct Block {
    int index;              // in the sequence
    int start;              // its first token, counted from the span's start
    const std::byte* next;  // read after it, or null
  };
  void PackQueries();
  void Prepare(kernels::KvCodec codec, const float* scaled, const RowTile& tile);
  std::byte* PreparedQueries(kernels::KvCodec codec, int first_row) const;
  void ScoreBlock(const Block& block, float* scores);
  void ScoreSinks(kernels::ScoreTile args, const std::byte* keys, int first_row);

  const LayerContext& context_;
  const AttentionPlan::Unit& unit_;
  const SequenceRun& run_;
  AttentionPlan::Scratch scratch_;
  BlockLookup lookup_;
  kernels::KvCodec key_codec_;
  bool rotates_keys_;
  int head_dim_;
  int block_size_;
  int group_size_;
  Sight sight_;
  Queries queries_ = Queries::kOwn;  // that the span found last wants
  std::optional<Queries> packed_;    // that lie in the scratch
  int row_tiles_;
  RowTile tiles_[kMaxRowTiles];
  int begin_[kRowBlock];
  int end_[kRowBlock];
};

}  // namespace quire::kvstore
