// Residual groups: tails that exist only while a group is open, hits that end where groups do, and
// sinks that belong to the first block.
#include <numeric>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kv/kv_cache.h"
#include "testing/random_runs.h"

namespace quire::kv {
namespace {

constexpr int kBlock = 16;
constexpr int kGroup = 4 * kBlock;
constexpr int kTailFrames = 3;

KvCacheOptions Options(int frames) {
  KvCacheOptions options;
  options.frames = frames;
  options.block_tokens = kBlock;
  options.residual_tokens = kGroup;
  options.groups = {{.window_tokens = std::nullopt, .tail_frames = kTailFrames}};
  return options;
}

std::vector<TokenId> Counting(int count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

Lease Computed(KvCache& cache, const std::vector<TokenId>& tokens) {
  std::optional<Lease> lease =
      cache.Reserve(cache.Match(tokens, {}), static_cast<int>(tokens.size()));
  QUIRE_CHECK(lease.has_value());
  cache.CopiesDone();
  cache.Commit(*lease, tokens);
  return *std::move(lease);
}

TEST(KvTail, AGroupCompletedByOneStepNeedsNoTailFrames) {
  KvCache cache(Options(2 * 4));
  const std::optional<Lease> lease = cache.Reserve(cache.NoMatch({}), 2 * kGroup);
  ASSERT_TRUE(lease);  // eight body frames and no other
  EXPECT_EQ(lease->frames(0).size(), 8u);
  EXPECT_TRUE(lease->tail(0).blocks.empty());
  cache.CheckInvariants();
}

TEST(KvTail, AnOpenGroupLiesInTailFramesAlone) {
  KvCache cache(Options(64));
  const Lease lease = Computed(cache, Counting(kGroup + kBlock + 1));
  EXPECT_EQ(lease.frames(0).size(), 4u);
  EXPECT_EQ(std::vector(lease.tail(0).blocks.begin(), lease.tail(0).blocks.end()),
            (std::vector{4, 5}));
  EXPECT_EQ(lease.tail(0).frames.size(), 2u * kTailFrames);
  EXPECT_EQ(cache.stats().frames_leased, 4 + 2 * kTailFrames);
  EXPECT_EQ(cache.stats().frames_published, 4);
  cache.CheckInvariants();
}

TEST(KvTail, CommitFreesTheTailOfWhatItSeals) {
  KvCache cache(Options(64));
  const auto tokens = Counting(kGroup + 1);
  Lease lease = Computed(cache, {tokens.begin(), tokens.end() - 2});
  EXPECT_EQ(cache.stats().frames_leased, 4 * kTailFrames);
  ASSERT_TRUE(cache.Extend(lease, kGroup + 1));
  // While the step runs the old tail, its bodies and the next group's tail are all there.
  EXPECT_EQ(cache.stats().frames_leased, 4 * kTailFrames + 4 + kTailFrames);
  cache.CheckInvariants();
  cache.Commit(lease, tokens);
  EXPECT_EQ(cache.stats().frames_leased, 4 + kTailFrames);
  cache.CheckInvariants();
}

TEST(KvTail, AHitEndsWhereAResidualGroupEnds) {
  KvCache cache(Options(64));
  auto tokens = Counting(3 * kGroup);
  cache.Release(Computed(cache, tokens));
  EXPECT_EQ(cache.Match(tokens, {}).tokens, 2 * kGroup);  // a token is left to compute
  tokens.push_back(0);
  EXPECT_EQ(cache.Match(tokens, {}).tokens, 3 * kGroup);
  tokens[2 * kGroup - 1] = 999;
  const PrefixMatch match = cache.Match(tokens, {});
  EXPECT_EQ(match.tokens, kGroup);
  EXPECT_FALSE(match.partial_source.has_value());
}

TEST(KvTail, ForksShareTheTailAndCopyItOnWrite) {
  KvCache cache(Options(64));
  auto tokens = Counting(kBlock + 5);
  Lease lease = Computed(cache, tokens);
  std::optional<Lease> fork = cache.Fork(lease);
  ASSERT_TRUE(fork);
  EXPECT_EQ(cache.stats().frames_leased, 2 * kTailFrames);
  EXPECT_TRUE(cache.SharesTail(lease, *fork));
  EXPECT_EQ(cache.FramesFreedByRelease(lease), 0);
  EXPECT_EQ(cache.FramesToExtend(*fork, kBlock + 6), kTailFrames);
  ASSERT_TRUE(cache.Extend(*fork, kBlock + 6));
  ASSERT_EQ(cache.pending_copies().size(), static_cast<size_t>(kTailFrames));
  EXPECT_EQ(cache.pending_copies()[0].role, FrameRole::kTail);
  EXPECT_FALSE(cache.SharesTail(lease, *fork));
  // The full block is still shared, and each seals it into a frame of its own.
  EXPECT_EQ(lease.tail(0).frames[0], fork->tail(0).frames[0]);
  EXPECT_NE(lease.tail(0).frames[kTailFrames], fork->tail(0).frames[kTailFrames]);
  cache.CopiesDone();
  tokens = Counting(kGroup);
  ASSERT_TRUE(cache.Extend(lease, kGroup));
  ASSERT_TRUE(cache.Extend(*fork, kGroup));
  EXPECT_NE(lease.frames(0)[0], fork->frames(0)[0]);
  cache.CheckInvariants();
  cache.Commit(lease, tokens);
  cache.Commit(*fork, tokens);
  EXPECT_EQ(lease.frames(0)[0], fork->frames(0)[0]);  // equal tokens: one of them is given back
  EXPECT_EQ(cache.stats().frames_leased, 4);
  cache.CheckInvariants();
}

TEST(KvTail, AGroupThatOnlyDraftsCompleteKeepsItsTail) {
  KvCache cache(Options(64));
  const auto tokens = Counting(kGroup + 2);
  Lease lease = Computed(cache, {tokens.begin(), tokens.begin() + kGroup - 2});
  ASSERT_TRUE(cache.Extend(lease, kGroup + 2, 3));
  cache.Commit(lease, std::span(tokens).first(kGroup - 1));  // all three rejected
  EXPECT_EQ(lease.tail(0).blocks.size(), 5u);
  EXPECT_EQ(cache.stats().frames_published, 0);
  cache.Truncate(lease, lease.committed());
  EXPECT_EQ(lease.tail(0).blocks.size(), 4u);
  EXPECT_EQ(lease.frames(0).size(), 0u);
  cache.CheckInvariants();
}

TEST(KvTail, SinksComeAndGoWithTheFirstBlock) {
  KvCacheOptions options = Options(16);
  options.groups.push_back({.window_tokens = std::nullopt, .blocks = GroupBlocks::kFirst});
  KvCache cache(options);
  const auto tokens = Counting(2 * kGroup + 1);
  Lease first = Computed(cache, tokens);
  EXPECT_EQ(first.frames(1).size(), 1u);
  const PrefixMatch match = cache.Match(tokens, {});
  ASSERT_EQ(match.tokens, 2 * kGroup);
  const std::optional<Lease> second = cache.Reserve(match, 2 * kGroup + 1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->frames(1)[0], first.frames(1)[0]);
  EXPECT_EQ(cache.stats().frames_leased, 8 + 1 + 2 * kTailFrames);
  cache.CheckInvariants();
  cache.Release(std::move(first));
  cache.CheckInvariants();
}

TEST(KvTail, AFailedExtensionChangesNothing) {
  KvCache cache(Options(4 * kTailFrames + 3));
  Lease lease = Computed(cache, Counting(kGroup - 1));
  EXPECT_FALSE(cache.Extend(lease, kGroup));  // sealing needs four frames
  EXPECT_EQ(cache.LongestExtension(lease, kGroup), kGroup - 1);
  EXPECT_EQ(cache.stats().frames_leased, 4 * kTailFrames);
  EXPECT_EQ(lease.reserved(), kGroup - 1);
  cache.CheckInvariants();
}

TEST(KvTail, TheLongestReservationMayEndWhereAGroupDoes) {
  KvCache cache(Options(9));
  // 2 groups take 8 frames; one more token would take a tail, which does not fit.
  EXPECT_EQ(cache.LongestReservation(cache.NoMatch({}), 2 * kGroup + 5), 2 * kGroup);
  // Within the first group the tail alone counts: three blocks of three frames.
  EXPECT_EQ(cache.LongestReservation(cache.NoMatch({}), kGroup - 1), 3 * kBlock);
}

// However a sequence is cut into steps, what is promised for it is enough for it alone, and some
// way of cutting needs all of it.
TEST(KvTail, WhatIsPromisedIsEnoughAndIsNeeded) {
  base::CounterRng rng(testing::TestSeed(11), 0, 0);
  const auto below = [&](int bound) { return static_cast<int>(rng.NextBelow(bound)); };
  for (int64_t round = testing::TestRuns(200); round > 0; --round) {
    KvCacheOptions options;
    options.block_tokens = 4;
    options.residual_tokens = 4 * (1 + below(4));
    const int tail_frames = 1 + below(3);
    options.groups = {{.window_tokens = std::nullopt, .tail_frames = tail_frames},
                      {.window_tokens = std::nullopt, .blocks = GroupBlocks::kFirst}};
    const bool window = below(2) == 0;
    if (window) options.groups.push_back({.window_tokens = 1 + below(30), .tail_frames = 2});
    const int length = 1 + below(80);
    const int step = 1 + below(24);
    options.frames = KvCache::FramesForSequence(options, length, step);
    KvCache cache(options);
    int most = 0;
    for (int attempt = 0; attempt < 50; ++attempt) {
      const auto tokens = Counting(length);
      std::optional<Lease> lease = cache.Reserve(cache.NoMatch({}), 1);
      ASSERT_TRUE(lease);
      for (int done = 0; done < length;) {
        const int next = std::min(length, done + 1 + below(step));
        ASSERT_LE(cache.FramesToExtend(*lease, next), cache.FramesToFinish(*lease, length, step));
        ASSERT_TRUE(cache.Extend(*lease, next)) << length << " in steps of " << step;
        most = std::max(most, cache.stats().frames_leased);
        cache.Commit(*lease, std::span(tokens).first(next));
        done = next;
      }
      cache.Release(*std::move(lease));
      cache.DropCached();
    }
    EXPECT_LE(most, options.frames);
    if (window) continue;
    if (step == 1) {
      EXPECT_EQ(most, options.frames);
    }
    // Two blocks of slack: steps seldom fall as badly as they can.
    EXPECT_GE(most + 2 * tail_frames, options.frames) << length << " by " << step;
  }
}

TEST(KvTail, StatisticsCountTokensOfATailOnce) {
  KvCacheOptions options = Options(64);
  options.frame_bytes = 1600;
  options.groups.push_back({.window_tokens = std::nullopt, .blocks = GroupBlocks::kFirst});
  KvCache cache(options);
  const Lease lease = Computed(cache, Counting(kGroup + kBlock + 1));
  const KvStats stats = cache.stats();
  EXPECT_EQ(stats.frames_leased, 4 + 1 + 2 * kTailFrames);
  EXPECT_EQ(stats.tokens_leased, kGroup + 2 * kBlock);
  EXPECT_EQ(stats.tokens_wasted, kBlock - 1);
  EXPECT_EQ(stats.waste_bytes, (kBlock - 1) * kTailFrames * 1600 / kBlock);
}

TEST(KvTail, ResidualGroupsThatCannotWorkAreRefused) {
  KvCacheOptions options = Options(8);
  options.residual_tokens = kBlock + 1;
  EXPECT_FALSE(KvCache::Validate(options).ok());
  options = Options(8);
  options.groups[0].tail_frames = 0;
  EXPECT_FALSE(KvCache::Validate(options).ok());
  options = Options(8);
  options.residual_tokens = 0;
  EXPECT_FALSE(KvCache::Validate(options).ok());
}

}  // namespace
}  // namespace quire::kv
