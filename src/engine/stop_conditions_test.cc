#include "engine/stop_conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::engine {
namespace {

using sched::FinishReason;
using sched::SamplingParams;
using ::testing::ElementsAre;

constexpr TokenId kEos[] = {2, 7};

TEST(StopConditions, EndsAtEndTokensAndAtTheLimit) {
  SamplingParams params;
  params.max_tokens = 3;
  params.stop_token_ids = {5, 2};
  StopConditions stop(params, kEos, 100);
  EXPECT_EQ(stop.AfterToken(1, 1), std::nullopt);
  EXPECT_EQ(stop.AfterToken(2, 1), FinishReason::kStop);
  EXPECT_EQ(stop.AfterToken(5, 2), FinishReason::kStop);
  EXPECT_EQ(stop.AfterToken(7, 3), FinishReason::kStop) << "an end token at the limit is an end";
  EXPECT_EQ(stop.AfterToken(1, 3), FinishReason::kLength);
}

TEST(StopConditions, TheContextLimitsTheTokens) {
  SamplingParams params;
  params.max_tokens = 50;
  EXPECT_EQ(StopConditions(params, kEos, 4).max_tokens(), 4);
  EXPECT_EQ(StopConditions(params, kEos, -1).max_tokens(), 0);
  EXPECT_EQ(StopConditions(params, kEos, 4).AfterToken(1, 4), FinishReason::kLength);
}

TEST(StopConditions, IgnoredEosIsAnOrdinaryToken) {
  SamplingParams params;
  params.ignore_eos = true;
  params.stop_token_ids = {7};
  StopConditions stop(params, kEos, 100);
  EXPECT_EQ(stop.AfterToken(2, 1), std::nullopt);
  EXPECT_EQ(stop.AfterToken(7, 1), FinishReason::kStop);
}

TEST(StopConditions, NothingEndsBeforeMinTokens) {
  SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {9};
  StopConditions stop(params, kEos, 100);
  EXPECT_THAT(stop.BannedAt(0), ElementsAre(2, 7, 9));
  EXPECT_THAT(stop.BannedAt(1), ElementsAre(2, 7, 9));
  EXPECT_TRUE(stop.BannedAt(2).empty());
  EXPECT_FALSE(stop.StopStringsCountAt(1));
  EXPECT_TRUE(stop.StopStringsCountAt(2));
  EXPECT_EQ(stop.AfterToken(9, 3), FinishReason::kStop);
}

}  // namespace
}  // namespace quire::engine
