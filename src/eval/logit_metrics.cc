#include "eval/logit_metrics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace quire::eval {

double LogSumExp(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

TokenId BestToken(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

double NegativeLogLikelihood(std::span<const float> logits, double log_sum, TokenId token) {
  return log_sum - logits[token];
}

double KlDivergence(const LogitRow& p, const LogitRow& q) {
  QUIRE_CHECK_EQ(p.logits.size(), q.logits.size());
  const double shift = q.log_sum - p.log_sum;
  double sum = 0;
  for (size_t t = 0; t < p.logits.size(); ++t) {
    const double log_ratio = static_cast<double>(p.logits[t]) - q.logits[t] + shift;
    sum += std::exp(p.logits[t] - p.log_sum) * log_ratio;
  }
  return std::max(sum, 0.0);  // below by rounding alone
}

double Percentile(std::span<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const size_t index = std::min(static_cast<size_t>(std::max(rank, 1.0)), values.size()) - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(index));
  return values[index];
}

}  // namespace quire::eval
