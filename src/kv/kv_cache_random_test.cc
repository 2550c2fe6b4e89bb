// KvCache against a naive twin under random operations: tiny pools, colliding hashes, windows,
// forks, rejected drafts, cancellations. Any difference in hits, states, copies or contents aborts.
#include <gtest/gtest.h>

#include "kv/fake_frames.h"
#include "kv/naive_cache.h"
#include "testing/random_runs.h"

namespace quire::kv {
namespace {

class RandomOperations {
 public:
  explicit RandomOperations(uint64_t seed)
      : rng_(seed, 0, 0),
        options_(Options(seed)),
        cache_(options_),
        twin_(options_),
        frames_(options_) {}

  void Run(int64_t operations) {
    for (int64_t i = 0; i < operations; ++i) {
      Operate();
      CheckCounts();
      if (i % 8 == 0) cache_.CheckInvariants();
    }
    while (!held_.empty()) Release(0);
    if (cache_.pending_copies().empty() == false) ExecuteCopies();
    CheckCounts();
    cache_.CheckInvariants();
    QUIRE_CHECK_EQ(cache_.stats().frames_leased, 0);
  }

 private:
  struct Held {
    Lease lease;
    NaiveCache::Holding twin;
    std::vector<TokenId> future;  // what the sequence will hold when it goes on
  };

  KvCacheOptions Options(uint64_t seed) {
    KvCacheOptions options;
    options.block_tokens = 1 << Below(4);
    options.max_leases = 1 + Below(6);
    int blocks = 3 + Below(6);
    const bool with_sinks = Below(3) == 0;
    switch (Below(5)) {
      case 0:
        options.groups = {{}, {2 + Below(12)}};
        break;
      case 1:
        options.groups = {{2 + Below(12)}, {}, {2 + Below(12)}};
        break;
      case 2:
        // Where every layer has a window, cached chains run through blocks without frames; short
        // sequences keep them within the index, whose being full the twin does not know.
        options.groups = {{2 + Below(12)}};
        blocks = 3;
        break;
      default:
        break;
    }
    if (Below(2) == 0) AddTail(options, blocks);
    options.max_lease_tokens = blocks * options.block_tokens;
    options.frames = 2 + Below(3 * blocks);
    int frames_of_block = 0;
    for (const LayerGroup& g : options.groups) {
      frames_of_block += std::max(1, g.tail_frames);
    }
    options.frames *= frames_of_block;
    // Sinks follow the groups they belong to.
    const size_t groups = options.groups.size();
    for (size_t g = 0; g < groups && with_sinks; ++g) {
      options.groups.push_back(
          {.window_tokens = options.groups[g].window_tokens, .blocks = GroupBlocks::kFirst});
    }
    if (Below(2) == 0) {
      options.hash = [](uint64_t, std::span<const TokenId>) { return 3; };
    }
    if (Below(8) == 0) options.prefix_caching = PrefixCaching::kOff;
    options.hash_key = seed;
    return options;
  }

  // Residual groups of up to four blocks, tails of up to three frames per block.
  void AddTail(KvCacheOptions& options, int blocks) {
    options.residual_tokens = options.block_tokens * (1 + Below(std::min(4, blocks)));
    for (LayerGroup& group : options.groups) group.tail_frames = 1 + Below(3);
  }

  int Below(int bound) { return static_cast<int>(rng_.NextBelow(bound)); }
  CacheKey Key(const std::string& salt) const { return {salt, 0}; }
  int At(int i) const { return held_[i].lease.committed(); }

  void Operate() {
    const int some = held_.empty() ? 0 : Below(static_cast<int>(held_.size()));
    switch (held_.empty() ? 0 : Below(10)) {
      case 0:
      case 1:
        return Reserve();
      case 2:
      case 3:
      case 4:
        return Step(some);
      case 5:
        return Fork(some);
      case 6:
        return Truncate(some);
      case 7:
        return Release(some);
      case 8:
        return Below(3) == 0 ? Extend(some, 1 + Below(20)) : ExecuteCopies();
      default:
        return Rarely();
    }
  }

  // Few distinct tokens and common starts, so that prefixes meet.
  std::vector<TokenId> Sequence() {
    base::CounterRng common(77, Below(3), 0);
    std::vector<TokenId> tokens;
    const int shared = Below(options_.max_lease_tokens + 1);
    for (int i = 0; i < options_.max_lease_tokens; ++i) {
      tokens.push_back(static_cast<TokenId>(i < shared ? common.NextBelow(5) : rng_.NextBelow(5)));
    }
    return tokens;
  }

  NaiveCache::Hit CheckedMatch(const PrefixMatch& match, const std::vector<TokenId>& tokens,
                               const std::string& salt) {
    NaiveCache::Hit hit;
    if (options_.prefix_caching == PrefixCaching::kOn) hit = twin_.Match(tokens, salt);
    QUIRE_CHECK_EQ(match.tokens, hit.tokens);
    QUIRE_CHECK_EQ(match.partial_source.has_value(), hit.source.has_value());
    if (!match.partial_source) return hit;
    // Several blocks may match equally far; the twin follows the choice, if it is a right one.
    const auto start = tokens.begin() + match.full_blocks * options_.block_tokens;
    std::vector<TokenId> source(tokens.begin(), start);
    const auto block = cache_.tokens_of(*match.partial_source);
    source.insert(source.end(), block.begin(), block.end());
    QUIRE_CHECK(std::equal(tokens.begin(), tokens.begin() + hit.tokens, source.begin()));
    hit.source = source;
    return hit;
  }

  void Reserve() {
    Held held;
    held.future = Sequence();
    const std::string salt = Below(4) == 0 ? "s" : "";
    const int length = 1 + Below(options_.max_lease_tokens);
    const std::vector<TokenId> prompt(held.future.begin(), held.future.begin() + length);
    PrefixMatch match = cache_.Match(prompt, Key(salt));
    NaiveCache::Hit hit = CheckedMatch(match, prompt, salt);
    const int room = match.tokens + 1 + Below(length - match.tokens);
    const bool fits = twin_.FitsReserve(prompt, salt, hit, room) &&
                      static_cast<int>(held_.size()) < options_.max_leases;
    int longest = room;
    while (longest > match.tokens && !twin_.FitsReserve(prompt, salt, hit, longest)) --longest;
    QUIRE_CHECK_EQ(cache_.LongestReservation(match, room), longest);
    std::optional<Lease> lease = cache_.Reserve(match, room);
    QUIRE_CHECK_EQ(lease.has_value(), fits);
    if (!lease) return;
    held.lease = *std::move(lease);
    held.twin = twin_.Reserve(prompt, salt, hit, room);
    held_.push_back(std::move(held));
  }

  bool TryExtend(Held& held, int length, int unverified) {
    const bool fits = twin_.FitsExtend(held.twin, length, unverified);
    const int committed = held.lease.committed();
    if (unverified == 0) {
      int longest = length;
      while (longest > committed && !twin_.FitsExtend(held.twin, longest, 0)) --longest;
      QUIRE_CHECK_EQ(cache_.LongestExtension(held.lease, length), longest);
    }
    QUIRE_CHECK_EQ(cache_.FramesToExtend(held.lease, length, unverified),
                   twin_.ToExtend(held.twin, length, unverified));
    QUIRE_CHECK_EQ(cache_.Extend(held.lease, length, unverified), fits);
    if (fits) twin_.Extend(held.twin, length, unverified);
    return fits;
  }

  void Extend(int i, int by) {
    TryExtend(held_[i], std::min(options_.max_lease_tokens, At(i) + by), 0);
  }

  // A whole step of one sequence: room, copies, computation, commit.
  void Step(int i) {
    Held& held = held_[i];
    const int committed = held.lease.committed();
    const int length = std::min(options_.max_lease_tokens, committed + 1 + Below(12));
    if (length == committed) return;
    const int unverified = Below(2) == 0 ? 0 : Below(length - committed);
    if (!TryExtend(held, length, unverified)) return;
    ExecuteCopies();
    frames_.Compute(held.lease, held.future, Key(held.twin.salt), committed, length - committed);
    // Some of what was computed may be rejected drafts.
    const int accepted = length - Below(unverified + 1);
    const std::vector<TokenId> tokens(held.future.begin(), held.future.begin() + accepted);
    cache_.Commit(held.lease, tokens);
    twin_.Commit(held.twin, tokens);
    QUIRE_CHECK_EQ(held.lease.committed(), accepted);
    frames_.CheckCommitted(held.lease, held.future, Key(held.twin.salt));
  }

  void Fork(int i) {
    std::optional<Lease> lease = cache_.Fork(held_[i].lease);
    QUIRE_CHECK_EQ(lease.has_value(), static_cast<int>(held_.size()) < options_.max_leases);
    if (!lease) return;
    Held fork;
    fork.lease = *std::move(lease);
    fork.twin = twin_.Fork(held_[i].twin);
    fork.future = held_[i].future;
    for (size_t p = fork.twin.tokens.size(); p < fork.future.size(); ++p) fork.future[p] = Below(5);
    held_.push_back(std::move(fork));
  }

  void Truncate(int i) {
    const int committed = held_[i].lease.committed();
    const int length = committed + Below(held_[i].lease.reserved() - committed + 1);
    cache_.Truncate(held_[i].lease, length);
    twin_.Truncate(held_[i].twin, length);
  }

  void Release(int i) {
    twin_.Release(held_[i].twin);
    cache_.Release(std::move(held_[i].lease));
    held_.erase(held_.begin() + i);
  }

  void ExecuteCopies() {
    frames_.Copy(cache_.pending_copies());
    cache_.CopiesDone();
    twin_.CopiesDone();
  }

  void Rarely() {
    if (Below(40) > 0) return;
    cache_.DropCached();
    twin_.DropCached();
  }

  void CheckCounts() {
    QUIRE_CHECK_EQ(static_cast<int>(cache_.pending_copies().size()), twin_.copies());
    QUIRE_CHECK_EQ(cache_.frames_available(), options_.frames - twin_.leased());
    QUIRE_CHECK_EQ(cache_.frames_cached(), twin_.cached());
    for (const Held& held : held_) {
      QUIRE_CHECK_EQ(cache_.FramesFreedByRelease(held.lease), twin_.FreedByRelease(held.twin));
      QUIRE_CHECK_EQ(cache_.SharesTail(held.lease, held_.front().lease),
                     twin_.SharesPart(held.twin, held_.front().twin));
      QUIRE_CHECK_EQ(held.lease.committed(), static_cast<int>(held.twin.tokens.size()));
      QUIRE_CHECK_EQ(held.lease.reserved(), held.twin.reserved);
    }
  }

  base::CounterRng rng_;
  KvCacheOptions options_;
  KvCache cache_;
  NaiveCache twin_;
  FakeFrames frames_;
  std::vector<Held> held_;
};

TEST(KvCacheUnderRandomOperations, AgreesWithANaiveTwin) {
  const uint64_t seed = testing::TestSeed(3);
  const int64_t operations = testing::TestRuns(1'000'000);
  constexpr int64_t kPerRound = 2000;
  for (int64_t round = 0; round * kPerRound < operations; ++round) {
    RandomOperations(base::Mix64(seed) + round).Run(kPerRound);
  }
}

}  // namespace
}  // namespace quire::kv
