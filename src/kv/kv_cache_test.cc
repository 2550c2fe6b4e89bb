#include "kv/kv_cache.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::kv {
namespace {

constexpr int kBlock = 16;

KvCacheOptions Options(int frames) {
  KvCacheOptions options;
  options.frames = frames;
  options.block_tokens = kBlock;
  options.max_lease_tokens = 4096;
  return options;
}

std::vector<TokenId> Counting(int count, int from = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// A lease on `tokens`, all of them computed.
Lease Computed(KvCache& cache, const std::vector<TokenId>& tokens, const CacheKey& key = {}) {
  std::optional<Lease> lease =
      cache.Reserve(cache.Match(tokens, key), static_cast<int>(tokens.size()));
  QUIRE_CHECK(lease.has_value());
  cache.CopiesDone();
  cache.Commit(*lease, tokens);
  return *std::move(lease);
}

TEST(KvCache, ASecondIdenticalPromptComputesAtMostOneBlock) {
  KvCache cache(Options(64));
  const auto tokens = Counting(100);
  cache.Release(Computed(cache, tokens));
  const PrefixMatch match = cache.Match(tokens, {});
  EXPECT_EQ(match.tokens, 96);  // the tail of 4 was never a full block
  EXPECT_LE(100 - match.tokens, kBlock);
  cache.CheckInvariants();
}

TEST(KvCache, AHitLeavesAtLeastOneTokenToCompute) {
  KvCache cache(Options(64));
  const auto tokens = Counting(2 * kBlock);
  cache.Release(Computed(cache, tokens));
  const PrefixMatch match = cache.Match(tokens, {});
  EXPECT_EQ(match.tokens, 2 * kBlock - 1);
  EXPECT_EQ(match.full_blocks, 1);
  EXPECT_EQ(match.partial_tokens, kBlock - 1);
  EXPECT_EQ(cache.Match(std::vector<TokenId>{0}, {}).tokens, 0);
}

TEST(KvCache, AMatchThatEndsInsideABlockIsCopiedAndItsSourcePinned) {
  KvCache cache(Options(8));
  auto tokens = Counting(2 * kBlock);
  const Lease first = Computed(cache, tokens);
  tokens[kBlock + 5] = 999;  // diverges after five tokens of the second block
  const PrefixMatch match = cache.Match(tokens, {});
  EXPECT_EQ(match.tokens, kBlock + 5);
  std::optional<Lease> lease = cache.Reserve(match, 2 * kBlock);
  ASSERT_TRUE(lease);
  ASSERT_EQ(cache.pending_copies().size(), 1u);
  const PendingCopy copy = cache.pending_copies()[0];
  EXPECT_EQ(copy, (PendingCopy{0, first.frames(0)[1], lease->frames(0)[1], 5}));
  EXPECT_EQ(lease->frames(0)[0], first.frames(0)[0]);  // held once
  EXPECT_EQ(cache.stats().frames_leased, 3);
  cache.CheckInvariants();
  cache.Release(*std::move(lease));
  EXPECT_EQ(cache.stats().frames_leased, 3);  // the copy is still to be made
  cache.CopiesDone();
  EXPECT_EQ(cache.stats().frames_leased, 2);
  cache.CheckInvariants();
}

TEST(KvCache, RoomIsNeverMadeByEvictingWhatTheSameRequestHits) {
  KvCache cache(Options(4));
  const auto tokens = Counting(4 * kBlock);
  cache.Release(Computed(cache, Counting(2 * kBlock)));
  cache.Release(Computed(cache, Counting(2 * kBlock, 5000)));
  ASSERT_EQ(cache.frames_available(), 4);
  // The older two blocks are the hit; the two that make room must be the others.
  const PrefixMatch match = cache.Match(tokens, {});
  ASSERT_EQ(match.tokens, 2 * kBlock);
  const std::optional<Lease> lease = cache.Reserve(match, 4 * kBlock);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->committed(), 2 * kBlock);
  EXPECT_EQ(cache.stats().frames_evicted, 2);
  cache.CheckInvariants();
}

TEST(KvCache, AFailedReservationChangesNothing) {
  KvCache cache(Options(4));
  cache.Release(Computed(cache, Counting(3 * kBlock)));
  const auto tokens = Counting(6 * kBlock);
  const PrefixMatch match = cache.Match(tokens, {});
  EXPECT_FALSE(cache.Reserve(match, 6 * kBlock));
  EXPECT_EQ(cache.frames_cached(), 3);
  EXPECT_EQ(cache.Match(tokens, {}).tokens, match.tokens);
  EXPECT_EQ(cache.stats().frames_evicted, 0);
  EXPECT_EQ(cache.leases_held(), 0);
  cache.CheckInvariants();
}

TEST(KvCache, RoundRobinSessionsThatFitAlwaysHit) {
  constexpr int kSessions = 10;
  KvCache cache(Options(kSessions * 8));
  for (int round = 1; round <= 4; ++round) {
    for (int session = 0; session < kSessions; ++session) {
      const auto tokens = Counting(round * 2 * kBlock, session * 100000);
      const PrefixMatch match = cache.Match(tokens, {});
      EXPECT_EQ(match.tokens, (round - 1) * 2 * kBlock) << "session " << session;
      cache.Release(Computed(cache, tokens));
    }
  }
  EXPECT_EQ(cache.stats().frames_evicted, 0);
  EXPECT_EQ(cache.frames_cached(), kSessions * 8);
}

TEST(KvCache, EvictionTakesLeavesFirstAndTheLeastRecentlyUsed) {
  KvCache cache(Options(6));
  const auto old = Counting(3 * kBlock);
  const auto recent = Counting(3 * kBlock, 1000);
  cache.Release(Computed(cache, old));
  cache.Release(Computed(cache, recent));
  const Lease needs_two = Computed(cache, Counting(2 * kBlock, 9000));
  auto longer = old;
  longer.push_back(1);
  EXPECT_EQ(cache.Match(longer, {}).tokens, kBlock);  // its two deepest blocks went
  longer = recent;
  longer.push_back(1);
  EXPECT_EQ(cache.Match(longer, {}).tokens, 3 * kBlock);
  cache.CheckInvariants();
}

TEST(KvCache, SaltsAndAdaptersShareNothingAndAnEmptySaltIsNone) {
  KvCache cache(Options(64));
  const auto tokens = Counting(3 * kBlock);
  cache.Release(Computed(cache, tokens, {"x", 0}));
  EXPECT_EQ(cache.Match(tokens, {"y", 0}).tokens, 0);
  EXPECT_EQ(cache.Match(tokens, {}).tokens, 0);
  EXPECT_EQ(cache.Match(tokens, {"x", 1}).tokens, 0);
  EXPECT_EQ(cache.Match(tokens, {"x", 0}).tokens, 3 * kBlock - 1);
  cache.Release(Computed(cache, tokens, {"", 0}));
  EXPECT_EQ(cache.Match(tokens, {}).tokens, 3 * kBlock - 1);
}

TEST(KvCache, CollidingHashesShareNothing) {
  KvCacheOptions options = Options(64);
  options.hash = [](uint64_t, std::span<const TokenId>) { return 42; };
  KvCache cache(options);
  for (int i = 0; i < 8; ++i) {
    cache.Release(Computed(cache, Counting(3 * kBlock, i * 1000), {i % 2 ? "a" : "b", 0}));
  }
  for (int i = 0; i < 8; ++i) {
    const auto tokens = Counting(3 * kBlock, i * 1000);
    EXPECT_EQ(cache.Match(tokens, {i % 2 ? "a" : "b", 0}).tokens, 3 * kBlock - 1);
    EXPECT_EQ(cache.Match(tokens, {i % 2 ? "b" : "a", 0}).tokens, 0);
  }
  cache.CheckInvariants();
}

TEST(KvCache, ForksShareUntilTheyWrite) {
  KvCache cache(Options(16));
  const auto tokens = Counting(kBlock + 3);
  Lease a = Computed(cache, tokens);
  std::optional<Lease> b = cache.Fork(a);
  ASSERT_TRUE(b);
  EXPECT_EQ(cache.stats().frames_leased, 2);
  ASSERT_TRUE(cache.Extend(a, kBlock + 4));  // copies the tail they share
  ASSERT_EQ(cache.pending_copies().size(), 1u);
  EXPECT_EQ(cache.pending_copies()[0].tokens, 3);
  EXPECT_EQ(cache.pending_copies()[0].to, a.frames(0)[1]);
  cache.CopiesDone();
  ASSERT_TRUE(cache.Extend(*b, kBlock + 4));  // alone now: writes in place
  EXPECT_TRUE(cache.pending_copies().empty());
  EXPECT_EQ(cache.stats().frames_leased, 3);
  EXPECT_EQ(a.frames(0)[0], b->frames(0)[0]);
  cache.CheckInvariants();
}

TEST(KvCache, EqualBlocksComputedTwiceAreHeldOnce) {
  KvCache cache(Options(16));
  const auto tokens = Counting(2 * kBlock);
  std::optional<Lease> a = cache.Reserve(cache.Match(tokens, {}), 2 * kBlock);
  std::optional<Lease> b = cache.Reserve(cache.Match(tokens, {}), 2 * kBlock);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(cache.stats().frames_leased, 4);
  cache.Commit(*a, tokens);
  cache.Commit(*b, tokens);
  EXPECT_EQ(cache.stats().frames_leased, 2);
  EXPECT_EQ(cache.stats().frames_merged, 2);
  cache.CheckInvariants();
}

TEST(KvCache, RejectedDraftsGiveTheirFramesBack) {
  KvCache cache(Options(16));
  Lease lease = Computed(cache, Counting(kBlock - 1));
  ASSERT_TRUE(cache.Extend(lease, 3 * kBlock));
  EXPECT_EQ(cache.stats().frames_leased, 3);
  cache.Commit(lease, Counting(kBlock));  // one draft accepted
  cache.Truncate(lease, kBlock);
  EXPECT_EQ(cache.stats().frames_leased, 1);
  EXPECT_EQ(cache.Match(Counting(2 * kBlock), {}).tokens, kBlock);
  cache.CheckInvariants();
}

TEST(KvCache, WindowGroupsGiveBackWhatLeftTheWindowAndStillHit) {
  KvCacheOptions options = Options(64);
  options.groups = {LayerGroup{}, LayerGroup{2 * kBlock}};
  KvCache cache(options);
  const auto tokens = Counting(8 * kBlock);
  Lease lease = Computed(cache, tokens);
  EXPECT_EQ(lease.first_block(0), 0);
  EXPECT_EQ(lease.frames(0).size(), 8u);
  // The next query, at 8 blocks, sees 2 * kBlock - 1 tokens before it.
  EXPECT_EQ(lease.first_block(1), 6);
  EXPECT_EQ(lease.frames(1).size(), 2u);
  EXPECT_EQ(cache.frames_cached(), 6);  // of the window group: still there for shorter prompts
  cache.Release(std::move(lease));
  EXPECT_EQ(cache.Match(Counting(9 * kBlock), {}).tokens, 8 * kBlock);
  EXPECT_EQ(cache.Match(Counting(4 * kBlock), {}).tokens, 4 * kBlock - 1);
  cache.CheckInvariants();
}

TEST(KvCache, AHitNeedsOnlyTheBlocksWithinTheWindow) {
  KvCacheOptions options = Options(10);
  options.groups = {LayerGroup{2 * kBlock}};
  KvCache cache(options);
  const auto tokens = Counting(8 * kBlock);
  Lease lease = Computed(cache, tokens);
  // Others take the frames of the six blocks that left the window.
  const Lease other = Computed(cache, Counting(8 * kBlock, 70000));
  EXPECT_GT(cache.stats().frames_evicted, 0);
  cache.Release(std::move(lease));
  const PrefixMatch match = cache.Match(Counting(9 * kBlock), {});
  EXPECT_EQ(match.tokens, 8 * kBlock);
  const std::optional<Lease> hit = cache.Reserve(match, 8 * kBlock + 1);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->first_block(0), 6);
  EXPECT_EQ(hit->frames(0).size(), 3u);
  cache.CheckInvariants();
}

TEST(KvCache, DisabledCachingPublishesNothing) {
  KvCacheOptions options = Options(16);
  options.prefix_caching = PrefixCaching::kOff;
  KvCache cache(options);
  cache.Release(Computed(cache, Counting(4 * kBlock)));
  EXPECT_EQ(cache.frames_cached(), 0);
  EXPECT_EQ(cache.Match(Counting(4 * kBlock), {}).tokens, 0);
  EXPECT_EQ(cache.stats().frames_free, 16);
}

TEST(KvCache, MixedLengthsWasteAlmostNothing) {
  for (const auto& [block_tokens, bar] : {std::pair(16, 0.02), std::pair(32, 0.04)}) {
    KvCacheOptions options = Options(20000);
    options.block_tokens = block_tokens;
    options.frame_bytes = 1000 * block_tokens;
    KvCache cache(options);
    base::CounterRng rng(5, 0, 0);
    std::vector<Lease> leases;
    int64_t needed = 0;
    for (int i = 0; i < 200; ++i) {
      const int length = 1 + static_cast<int>(rng.NextBelow(2000));
      needed += length;
      leases.push_back(Computed(cache, Counting(length, i * 10000)));
    }
    const KvStats stats = cache.stats();
    EXPECT_EQ(stats.tokens_leased - stats.tokens_wasted, needed);
    EXPECT_EQ(stats.waste_bytes, stats.tokens_wasted * 1000);
    EXPECT_LT(static_cast<double>(stats.tokens_wasted) / stats.tokens_leased, bar) << block_tokens;
  }
}

// 64 MiB of KV for a small model (2 KiB per token) are room for 16 sequences where each is given
// max-model-len 2,048 in one piece.
TEST(KvCache, FourTimesAsManySequencesAsContiguousAllocation) {
  constexpr int64_t kArenaBytes = 64 << 20;
  constexpr int64_t kBytesPerToken = 2048;
  constexpr int kMaxModelLen = 2048;
  const int tokens = static_cast<int>(kArenaBytes / kBytesPerToken);
  const int contiguous = tokens / kMaxModelLen;
  KvCacheOptions options = Options(tokens / kBlock);
  options.max_lease_tokens = kMaxModelLen;
  KvCache cache(options);
  base::CounterRng rng(6, 0, 0);
  std::vector<Lease> leases;
  for (;;) {
    // Chat lengths: prompt and answer of a few hundred tokens, the odd long one.
    const int length =
        static_cast<int>(std::min<double>(kMaxModelLen, 1 - 350.0 * std::log1p(-rng.NextUnit())));
    const auto sequence = Counting(length, static_cast<int>(leases.size()) * 10000);
    auto lease = cache.Reserve(cache.Match(sequence, {}), length);
    if (!lease) break;
    leases.push_back(*std::move(lease));
  }
  EXPECT_EQ(contiguous, 16);
  EXPECT_GE(static_cast<int>(leases.size()), 4 * contiguous) << leases.size();
}

TEST(KvCache, OptionsThatCannotWorkAreRefused) {
  const auto refused = [](auto change) {
    KvCacheOptions options = Options(4);
    change(options);
    return !KvCache::Validate(options).ok();
  };
  EXPECT_TRUE(KvCache::Validate(Options(4)).ok());
  EXPECT_TRUE(refused([](KvCacheOptions& o) { o.frames = 0; }));
  EXPECT_TRUE(refused([](KvCacheOptions& o) { o.block_tokens = 0; }));
  EXPECT_TRUE(refused([](KvCacheOptions& o) { o.groups.clear(); }));
  EXPECT_TRUE(refused([](KvCacheOptions& o) { o.groups = {LayerGroup{0}}; }));
  EXPECT_TRUE(refused([](KvCacheOptions& o) { o.max_leases = 0; }));
}

TEST(KvCache, FramesForSequenceCountsWhatAWindowHolds) {
  KvCacheOptions options = Options(100);
  options.groups = {LayerGroup{}, LayerGroup{3 * kBlock}};
  // 10 blocks whole; a window of 48 tokens touches at most 4 blocks.
  EXPECT_EQ(KvCache::FramesForSequence(options, 10 * kBlock, 1), 10 + 4);
  EXPECT_EQ(KvCache::FramesForSequence(options, kBlock, 1), 2);
  EXPECT_EQ(KvCache::MaxSequenceTokens(options, 1), 96 * kBlock);
}

}  // namespace
}  // namespace quire::kv
