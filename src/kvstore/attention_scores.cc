#include "kvstore/attention_scores.h"

#include <algorithm>

#include "kernels/attention_math.h"

namespace quire::kvstore {
namespace {

using kernels::kSpan;
using RowState = AttentionPlan::RowState;

// A span's weights and largest scores, of all rows of a unit.
struct WeighedSpan {
  int span = 0;
  const float* weights = nullptr;  // [rows, kSpan]
  const float* max = nullptr;      // [rows]
};

// Adds rows [first_row, unit.rows) of a span that `scores` found last.
void AddSpan(const LayerContext& context, const AttentionPlan::Unit& unit, const SpanScores& scores,
             const WeighedSpan& from, const RowState& total) {
  const int index = *context.plan.request_of(unit.run);
  const ScoreRequest& request = context.plan.requests()[index];
  const int group_size = context.plan.group_size();
  const int first_row = std::max(0, request.first_row * group_size - unit.first);
  const int end_row = std::min(unit.rows, request.end_row * group_size - unit.first);
  float* sums = context.rows.scores[index].row(unit.kv_head) + from.span * kSpan;
  for (int r = first_row; r < end_row; ++r) {
    const int begin = scores.begin(r);
    const int end = scores.end(r);
    if (begin >= end) continue;
    const float factor = kernels::ExpNonPositive(from.max[r] - total.max[r]) /
                         (total.sum[r] * static_cast<float>(group_size));
    context.kernels.merge(sums + begin, from.weights + r * kSpan + begin, end - begin, 1.0f,
                          factor);
  }
}

}  // namespace

void AddKeptScores(const LayerContext& context, const AttentionPlan::Unit& unit, SpanScores& scores,
                   const RowState& total) {
  for (int span = unit.seen.first; span <= unit.seen.last; ++span) {
    scores.Find(span);
    const AttentionPlan::KeptSpan kept = context.plan.kept(unit, span);
    AddSpan(context, unit, scores, {span, kept.weights, kept.max}, total);
  }
}

void AddScoresAgain(const LayerContext& context, const AttentionPlan::ScoreUnit& unit, int thread) {
  AttentionPlan& plan = context.plan;
  const AttentionPlan::Scratch scratch = plan.scratch(thread);
  const ScoreRequest& request = plan.requests()[unit.request];
  const int rows = request.end_row * plan.group_size();
  for (int first = request.first_row * plan.group_size(); first < rows;) {
    const AttentionPlan::RowBlock block = plan.RowBlockAt(request.run, first, context.list.window);
    first += block.rows;
    const int first_span = std::max(unit.first_span, block.seen.first);
    const int last_span = std::min(unit.last_span, block.seen.last);
    if (first_span > last_span) continue;
    AttentionPlan::Unit part;
    part.run = request.run;
    part.kv_head = unit.kv_head;
    part.first = block.first;
    part.rows = block.rows;
    part.seen = block.seen;
    SpanScores scores(context, part, thread);
    for (int r = 0; r < part.rows; ++r) {
      const AttentionPlan::RowTotal total = plan.row_total(scores.BatchRow(r), scores.QHead(r));
      scratch.total.max[r] = total.max;
      scratch.total.sum[r] = total.sum;
    }
    for (int span = first_span; span <= last_span; ++span) {
      const SpanBlocks blocks = scores.Find(span);
      const SpanWeights weighed{scratch.scores, scratch.part.max, scratch.part.sum};
      const std::byte* next =
          span < last_span ? scores.lookup()(blocks.first + blocks.count).keys : nullptr;
      scores.Weigh(blocks, weighed, next);
      AddSpan(context, part, scores, {span, weighed.weights, weighed.max}, scratch.total);
    }
  }
}

}  // namespace quire::kvstore
