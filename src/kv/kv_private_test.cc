// Private leases: what a sequence holds that has evicted tokens.
#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kv/kv_cache.h"
#include "testing/random_runs.h"

namespace quire::kv {
namespace {

KvCacheOptions SmallOptions() {
  KvCacheOptions options;
  options.frames = 20;
  options.block_tokens = 4;
  options.max_leases = 8;
  options.max_lease_tokens = 64;
  return options;
}

std::vector<TokenId> Tokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(i);
  return tokens;
}

TEST(PrivateLease, FramesItMayStillTakeAreNobodyElses) {
  KvCache cache(SmallOptions());
  std::optional<Lease> lease = cache.ReservePrivate(16, 24);
  ASSERT_TRUE(lease);
  EXPECT_EQ(cache.stats().frames_leased, 4);
  EXPECT_EQ(cache.frames_available(), 14);
  EXPECT_FALSE(cache.Reserve(cache.NoMatch({}), 15 * 4));
  const std::optional<Lease> other = cache.Reserve(cache.NoMatch({}), 14 * 4);
  ASSERT_TRUE(other);
  EXPECT_EQ(cache.frames_available(), 0);
  cache.CommitPrivate(*lease, 16);
  EXPECT_EQ(cache.FramesToExtend(*lease, 24), 0);
  EXPECT_TRUE(cache.Extend(*lease, 24));
  EXPECT_EQ(cache.FramesToExtend(*lease, 28), 1);
  EXPECT_FALSE(cache.Extend(*lease, 28));
  cache.CheckInvariants();
}

TEST(PrivateLease, IsRefusedWhereItsLongestDoesNotFitAndNothingChanges) {
  KvCache cache(SmallOptions());
  const std::optional<Lease> other = cache.Reserve(cache.NoMatch({}), 60);
  EXPECT_FALSE(cache.ReservePrivate(16, 24));
  EXPECT_EQ(cache.leases_held(), 1);
  EXPECT_EQ(cache.frames_available(), 5);
  cache.CheckInvariants();
}

TEST(PrivateLease, PublishesNothingAndFreesAll) {
  KvCache cache(SmallOptions());
  const std::vector<TokenId> tokens = Tokens(16);
  {
    std::optional<Lease> lease = cache.ReservePrivate(16, 17);
    cache.CommitPrivate(*lease, 16);
    EXPECT_EQ(cache.Match(Tokens(20), {}).tokens, 0);
  }
  EXPECT_EQ(cache.frames_cached(), 0);
  EXPECT_EQ(cache.frames_available(), 20);
  cache.CheckInvariants();
}

TEST(PrivateLease, ShrinksTokenByTokenWithoutATail) {
  KvCache cache(SmallOptions());
  std::optional<Lease> lease = cache.ReservePrivate(16, 17);
  cache.CommitPrivate(*lease, 16);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(cache.Extend(*lease, 17));
    cache.CommitPrivate(*lease, 17);
    cache.Shrink(*lease, 16);
    EXPECT_EQ(lease->committed(), 16);
    EXPECT_EQ(cache.stats().frames_leased, 4);
    cache.CheckInvariants();
  }
}

// Whatever others take, a private lease grows to its longest and shrinks again, for layouts with
// tails and sinks.
TEST(PrivateLease, NeverLacksAFrameUpToItsLongest) {
  const uint64_t seed = testing::TestSeed(5);
  for (int64_t run = 0; run < testing::TestRuns(300); ++run) {
    base::CounterRng rng(seed, run, 0);
    const auto below = [&](int bound) { return static_cast<int>(rng.NextBelow(bound)); };
    KvCacheOptions options = SmallOptions();
    options.frames = 40 + below(60);
    options.groups.resize(1 + below(2));
    if (below(2) == 0) {
      options.residual_tokens = options.block_tokens * (1 + below(3));
      for (LayerGroup& group : options.groups) group.tail_frames = 1 + below(3);
    }
    if (below(2) == 0) {
      options.groups.push_back(
          {.window_tokens = std::nullopt, .tail_frames = 0, .blocks = GroupBlocks::kFirst});
    }
    KvCache cache(options);
    const int unit = std::max(1, options.residual_tokens);
    const int least = options.residual_tokens > 0 ? unit : 1 + below(16);
    std::vector<Lease> others;
    std::vector<Lease> leases;
    for (int i = 0; i < 3; ++i) {
      if (auto lease = cache.ReservePrivate(least, least + unit)) {
        cache.CommitPrivate(*lease, least);
        leases.push_back(*std::move(lease));
      }
    }
    for (int step = 0; step < 200; ++step) {
      if (below(3) == 0 && !others.empty()) others.pop_back();
      const PrefixMatch match = cache.NoMatch({});
      const int wanted = 1 + below(options.max_lease_tokens);
      if (others.size() < 4 && cache.FramesToReserve(match, wanted) <= cache.frames_available()) {
        others.push_back(*cache.Reserve(match, wanted));
      }
      for (Lease& lease : leases) {
        const int next = lease.committed() + 1;
        ASSERT_TRUE(cache.Extend(lease, next)) << "run " << run;
        cache.CommitPrivate(lease, next);
        if (next == least + unit) cache.Shrink(lease, least);
      }
      cache.CheckInvariants();
    }
  }
}

}  // namespace
}  // namespace quire::kv
