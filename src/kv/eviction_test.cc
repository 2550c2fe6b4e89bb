#include "kv/eviction.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "testing/random_runs.h"

namespace quire::kv {
namespace {

EvictionOptions OptionsOf(EvictionPolicy policy, int budget) {
  EvictionOptions options;
  options.policy = policy;
  options.budget_tokens = budget;
  return options;
}

std::vector<int> Kept(const EvictionRule& rule, std::span<const float> scores,
                      std::span<const int> positions, int kept) {
  std::vector<int> slots(kept);
  std::vector<int> scratch;
  SelectKept(rule, {scores, positions}, slots, scratch);
  return slots;
}

std::vector<int> Upto(int count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(EvictionTest, StreamingKeepsTheFirstAndTheNewest) {
  const EvictionRule rule = RuleFor(OptionsOf(EvictionPolicy::kStreaming, 6), 10, {});
  EXPECT_EQ(Kept(rule, {}, Upto(10), 6), (std::vector<int>{0, 1, 2, 3, 8, 9}));
}

TEST(EvictionTest, HeavyHittersAreKeptBesideTheRecentOnes) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kH2o, 5);
  options.sinks = 0;
  options.recent = 2;
  const std::vector<float> scores = {1, 9, 2, 8, 7, 0, 0, 0};
  const EvictionRule rule = RuleFor(options, 8, {});
  EXPECT_EQ(Kept(rule, scores, Upto(8), 5), (std::vector<int>{1, 3, 4, 6, 7}));
}

TEST(EvictionTest, OfEqualScoresTheNewerStays) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kH2o, 4);
  options.sinks = 0;
  options.recent = 1;
  const std::vector<float> scores(8, 0.5f);
  const EvictionRule rule = RuleFor(options, 8, {});
  EXPECT_EQ(Kept(rule, scores, Upto(8), 4), (std::vector<int>{4, 5, 6, 7}));
  // Slots in another order of position, as in a ring.
  const std::vector<int> positions = {6, 7, 0, 1, 2, 3, 4, 5};
  EXPECT_EQ(Kept(rule, scores, positions, 4), (std::vector<int>{0, 1, 6, 7}));
}

TEST(EvictionTest, ASumPerQueryFavoursNoEarlyToken) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kH2o, 2);
  options.sinks = 0;
  options.recent = 1;
  const std::vector<float> scores = {4.0f, 3.9f, 3.0f, 0.0f};  // seen by 4, 3 and 2 queries
  EXPECT_EQ(Kept(RuleFor(options, 4, {}), scores, Upto(4), 2), (std::vector<int>{0, 3}));
  options.heavy_hitters = HeavyHitters::kSumPerQuery;
  EXPECT_EQ(Kept(RuleFor(options, 4, {}), scores, Upto(4), 2), (std::vector<int>{2, 3}));
}

TEST(EvictionTest, WhatIsGeneratedAfterSnapKvMakesPromptTokensGoFirst) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kSnapKv, 6);
  options.recent = 1;
  options.sinks = 1;
  const EvictionRule rule = RuleFor(options, 4, {});
  std::vector<float> scores = {0, 5, 1, 3, kUnscored, kUnscored, kUnscored};
  EXPECT_EQ(SelectVictim(rule, {scores, Upto(7)}), 2);
  scores.assign(7, kUnscored);
  EXPECT_EQ(SelectVictim(rule, {scores, Upto(7)}), 1);  // the oldest behind the sink
}

TEST(EvictionTest, SnapKvSmoothsAllButTheObservingTokens) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kSnapKv, 8);
  options.observed = 2;
  options.pooled = 3;
  std::vector<float> scores = {3, 0, 6, 0, 9, 7, 7};
  std::vector<float> scratch;
  PoolScores(RuleFor(options, 7, {}), scores, scratch);
  EXPECT_EQ(scores, (std::vector<float>{1, 3, 2, 5, 3, 7, 7}));
}

TEST(EvictionTest, BudgetsAreWholeResidualGroupsAndHoldWhatIsAlwaysKept) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kH2o, 300);
  const EvictionRule rule = RuleFor(options, 1000, {.residual_tokens = 128, .sinks = 4});
  EXPECT_EQ(rule.budget, 256);
  EXPECT_EQ(rule.slots_max(), 384);
  EXPECT_EQ(RuleFor(options, 1000, {}).budget, 300);
  EXPECT_EQ(RuleFor(options, 1000, {}).slots_max(), 301);
  options.budget_tokens = 0;
  options.budget_ratio = 0.2;
  EXPECT_EQ(RuleFor(options, 1000, {}).budget, 200);
  EXPECT_EQ(RuleFor(options, 3, {}).budget, 5);
  EXPECT_EQ(RuleFor(options, 3, {.residual_tokens = 32}).budget, 32);
}

// Rounding down must not give up a pinned prompt.
TEST(EvictionTest, WhatIsAlwaysKeptDecidesHowManyResidualGroupsThereAre) {
  EvictionOptions options = OptionsOf(EvictionPolicy::kH2o, 250);
  options.pinned = 200;
  options.recent = 20;
  const EvictionRule rule = RuleFor(options, 1000, {.residual_tokens = 128, .sinks = 4});
  EXPECT_EQ(rule.budget, 256);
  EXPECT_EQ(rule.first, 200);
  EXPECT_GE(rule.recent, 20);
}

TEST(EvictionTest, NumbersOutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    EvictionOptions options = OptionsOf(EvictionPolicy::kH2o, 100);
    change(options);
    return !ValidateEviction(options).ok();
  };
  EXPECT_FALSE(refused([](EvictionOptions&) {}));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.budget_tokens = -1; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.sinks = -1; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.pinned = 100; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.recent = 0; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.recent = 97; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.pooled = 4; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.pooled = 257; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) { o.observed = 0; }));
  EXPECT_TRUE(refused([](EvictionOptions& o) {
    o.budget_tokens = 0;
    o.budget_ratio = 1.5;
  }));
  EXPECT_FALSE(ParseEvictionPolicy("lru").ok());
  for (const EvictionPolicy policy : kEvictionPolicies) {
    EXPECT_EQ(ParseEvictionPolicy(NameOf(policy)).value(), policy);
  }
}

// Against a plain sort, for every policy; and giving up one token at a time is the same as giving
// up one.
TEST(EvictionTest, SelectionEqualsASortOfAllSlots) {
  const uint64_t seed = testing::TestSeed(1);
  for (int64_t run = 0; run < testing::TestRuns(2000); ++run) {
    base::CounterRng rng(seed, run, 0);
    const auto below = [&](int bound) { return static_cast<int>(rng.NextBelow(bound)); };
    const int count = 2 + below(80);
    EvictionOptions options = OptionsOf(kEvictionPolicies[1 + below(4)], 1 + below(count));
    options.sinks = below(3);
    if (below(2) == 0) options.recent = 1 + below(4);
    options.heavy_hitters = below(2) == 0 ? HeavyHitters::kSum : HeavyHitters::kSumPerQuery;
    const EvictionRule rule = RuleFor(options, count, {});
    const int kept = std::min(rule.budget, count);
    std::vector<int> positions = Upto(2 * count);
    for (size_t i = positions.size(); i > 1; --i)
      std::swap(positions[i - 1], positions[below(static_cast<int>(i))]);
    positions.resize(count);
    std::vector<float> scores;
    for (int i = 0; i < count; ++i) scores.push_back(static_cast<float>(below(6)));
    const int newest = *std::ranges::max_element(positions);

    std::vector<int> order = Upto(count);
    const auto key = [&](int slot) {
      const int position = positions[slot];
      const bool always = position < rule.first || position + rule.recent > newest;
      double score = rule.policy == EvictionPolicy::kStreaming ? 0.0 : scores[slot];
      if (rule.policy == EvictionPolicy::kH2o && rule.heavy_hitters == HeavyHitters::kSumPerQuery) {
        score = scores[slot] / static_cast<float>(newest - position + 1);
      }
      return std::tuple(always, score, position);
    };
    std::ranges::sort(order, [&](int a, int b) { return key(a) > key(b); });
    if (kept < count) {
      EXPECT_EQ(SelectVictim(rule, {scores, positions}), order.back()) << "run " << run;
    }
    order.resize(kept);
    std::ranges::sort(order);
    EXPECT_EQ(Kept(rule, scores, positions, kept), order) << "run " << run;
  }
}

}  // namespace
}  // namespace quire::kv
