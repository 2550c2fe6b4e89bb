// What two rows of logits say about each other and about a token, in double precision and natural
// logarithms. Rows are finite; of equal logits the lowest id counts as the best.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"

namespace quire::eval {

// log(sum exp(logits)).
double LogSumExp(std::span<const float> logits);

TokenId BestToken(std::span<const float> logits);

// -log softmax(logits)[token], `log_sum` being LogSumExp(logits).
double NegativeLogLikelihood(std::span<const float> logits, double log_sum, TokenId token);

// A row of logits with its sum.
struct LogitRow {
  std::span<const float> logits;  // [vocab_size]
  double log_sum = 0;             // LogSumExp(logits)
};

// sum_t p(t) (log p(t) - log q(t)), never below 0.
double KlDivergence(const LogitRow& p, const LogitRow& q);

// The value below which a share of `share` of the values lies, by nearest rank; 0 for no values.
// Reorders them.
double Percentile(std::span<double> values, double share);

}  // namespace quire::eval
