// Attention scores: how much attention chosen rows of a step pay to each slot. What token eviction
// decides by: H2O (2306.14048) adds them up over all rows, SnapKV (2404.14469) over a prompt's last
// ones, TOVA (2401.06104) takes those of the last row alone.
//
//   sums[kv_head][slot] += mean over the group's q heads, sum over rows [request.first_row,
//   end_row),
//                          of softmax(scale * q.k)[row, slot]
//
// Softcap, window and precision (tail, sinks) are those of the row's attention. Slots that a row
// does not see are left alone.
//
// Order: a slot's sum is one chain of fused multiply-adds over the rows that see it, by position,
// and the q heads of each, ascending:
//   sum = fma(w, e^(m - M) / (S * group size), sum)
// where w is the row's weight of the slot within its span, m the span's largest score, and M and S
// the row's largest score and sum over all spans. All of these are the row's own, so sums depend
// neither on how a prompt is cut into steps, nor on the batch, nor on threads. There are two ways
// to get w again once M and S are known, equal bit for bit:
//   kept          units of runs with few rows (decode) keep the weights of all their spans
//   second pass   the others weigh the keys again, for each KV head and stretch of spans all rows
//                 in ascending order
// No more than one span of weights per row block is ever held in the latter.
#pragma once

#include "kvstore/span_scores.h"

namespace quire::kvstore {

// For a unit that keeps its weights (Unit::first_kept), once all its spans are computed and its
// rows' softmax over them, `total`, is known.
void AddKeptScores(const LayerContext& context, const AttentionPlan::Unit& unit, SpanScores& scores,
                   const AttentionPlan::RowState& total);

// The second pass, once all units of the layer are done.
void AddScoresAgain(const LayerContext& context, const AttentionPlan::ScoreUnit& unit, int thread);

}  // namespace quire::kvstore
