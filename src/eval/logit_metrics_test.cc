#include "eval/logit_metrics.h"

#include <cmath>

#include <gtest/gtest.h>

namespace quire::eval {
namespace {

LogitRow Row(std::span<const float> logits) {
  return {logits, LogSumExp(logits)};
}

TEST(LogitMetrics, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {10000, 10000};
  EXPECT_DOUBLE_EQ(LogSumExp(logits), 10000 + std::log(2));
  EXPECT_NEAR(NegativeLogLikelihood(logits, LogSumExp(logits), 1), std::log(2), 1e-11);
}

TEST(LogitMetrics, OfEqualLogitsTheLowestIdIsTheBest) {
  EXPECT_EQ(BestToken(std::vector<float>{-1, 2, 2, 0}), 1);
}

TEST(LogitMetrics, KlDivergenceIsTheDefinition) {
  // p = (1/4, 3/4), q = (1/2, 1/2), both shifted as logits may be.
  const std::vector<float> p = {5, 5 + static_cast<float>(std::log(3))};
  const std::vector<float> q = {-7, -7};
  const double expected = 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  EXPECT_NEAR(KlDivergence(Row(p), Row(q)), expected, 1e-6);
  const double reverse = 0.5 * std::log(2) + 0.5 * std::log(2.0 / 3);
  EXPECT_NEAR(KlDivergence(Row(q), Row(p)), reverse, 1e-6);
}

TEST(LogitMetrics, ARowHasNoDivergenceFromItselfAndNoneIsNegative) {
  std::vector<float> p, q;
  for (int i = 0; i < 500; ++i) p.push_back(std::sin(static_cast<float>(i)) * 20);
  q = p;
  for (float& value : q) value += 1e-6f;
  EXPECT_EQ(KlDivergence(Row(p), Row(p)), 0);
  EXPECT_GE(KlDivergence(Row(p), Row(q)), 0);
}

TEST(LogitMetrics, PercentilesGoByNearestRank) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  EXPECT_EQ(Percentile(values, 0.99), 198);
  EXPECT_EQ(Percentile(values, 0.5), 100);
  EXPECT_EQ(Percentile(values, 1), 200);
  EXPECT_EQ(Percentile(values, 0), 1);
  std::vector<double> none;
  EXPECT_EQ(Percentile(none, 0.5), 0);
}

}  // namespace
}  // namespace quire::eval
