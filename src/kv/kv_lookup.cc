// KvCache's questions: what is cached, what would something take, what is the state. None changes
// anything.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace quire::kv {
namespace {

// The most blocks of `group` a sequence of `length` tokens holds at once.
int BlocksHeldAtOnce(const KvCacheOptions& options, const LayerGroup& group, int length,
                     int step_tokens) {
  const int block = options.block_tokens;
  const int blocks = (length + block - 1) / block;
  if (!group.window_tokens) return blocks;
  // A run of n tokens touches at most ceil((n - 1) / block) + 1 blocks.
  const int64_t run = static_cast<int64_t>(*group.window_tokens) - 1 + step_tokens;
  const int64_t touched = (run + block - 2) / block + 1;
  return static_cast<int>(std::min<int64_t>(blocks, touched));
}

}  // namespace

// The block of the first token a query at `position` sees in `group`.
int KvCache::FirstBlockInWindow(int group, int position) const {
  const std::optional<int> window = options_.groups[group].window_tokens;
  if (!window) return 0;
  return std::max(0, position - *window + 1) / options_.block_tokens;
}

PrefixMatch KvCache::NoMatch(const CacheKey& key) const {
  PrefixMatch match;
  match.key = key;
  match.version = index_.version();
  if (options_.prefix_caching == PrefixCaching::kOn) match.tip = index_.FindRoot(key);
  return match;
}

// Whether the blocks that a query at `length` tokens sees are cached, of the `full` whole blocks
// that end in `tip`.
bool KvCache::WindowsAreCached(BlockId tip, int full, int length) const {
  std::optional<BlockId> block = tip;
  for (int b = full - 1; b >= 0; --b, block = index_.parent(*block)) {
    bool seen = false;
    for (int g = 0; g < groups(); ++g) {
      if (b < FirstBlockInWindow(g, length)) continue;
      if (!index_.frame(*block, g)) return false;
      seen = true;
    }
    if (!seen) return true;
    // Without windows a block has frames only where its parent has.
    if (!has_windows_) return true;
  }
  return true;
}

PrefixMatch KvCache::Match(std::span<const TokenId> tokens, const CacheKey& key) const {
  PrefixMatch best = NoMatch(key);
  if (!best.tip || tokens.size() < 2) return best;
  const int limit = static_cast<int>(tokens.size()) - 1;  // one token is left to compute
  const int block = options_.block_tokens;

  // Whole blocks as far as they go. Blocks in a row that have a frame, per group:
  std::array<int, kMaxGroups> runs{};
  BlockId tip = *best.tip;
  int full = 0;
  while ((full + 1) * block <= limit) {
    const auto child = index_.Find(tip, tokens.subspan(static_cast<size_t>(full) * block, block));
    if (!child) break;
    tip = *child;
    ++full;
    bool covered = true;
    for (int g = 0; g < groups(); ++g) {
      runs[g] = index_.frame(tip, g) ? runs[g] + 1 : 0;
      covered &= full - FirstBlockInWindow(g, full * block) <= runs[g];
    }
    if (covered) {
      best.full_blocks = full;
      best.tokens = full * block;
      best.tip = tip;
    }
  }
  // Then a part of a block, where possible the deepest.
  const int shallowest = std::max(best.full_blocks, full - kPartialLevels);
  for (; full >= shallowest; --full) {
    const auto rest =
        tokens.subspan(static_cast<size_t>(full) * block, std::min(limit - full * block, block));
    if (const auto partial = FindPartial(tip, full, rest)) {
      best.tokens = full * block + partial->tokens;
      best.full_blocks = full;
      best.partial_tokens = partial->tokens;
      best.tip = tip;
      best.partial_source = partial->block;
      break;
    }
    if (full > 0) tip = *index_.parent(tip);
  }
  return best;
}

std::optional<PrefixIndex::Partial> KvCache::FindPartial(BlockId tip, int full,
                                                         std::span<const TokenId> rest) const {
  return index_.FindPartial(tip, rest, [&](PrefixIndex::Partial candidate) {
    // All of it may be known to be a whole block that does not serve.
    if (candidate.tokens == options_.block_tokens) return false;
    for (int g = 0; g < groups(); ++g) {
      // A window of one token sees nothing before the query: no frame is needed.
      const bool sees_block = options_.groups[g].window_tokens.value_or(2) > 1;
      if (sees_block && !index_.frame(candidate.block, g)) return false;
    }
    return WindowsAreCached(tip, full, full * options_.block_tokens + candidate.tokens);
  });
}

PrefixMatch KvCache::FullBlocksOnly(PrefixMatch match) const {
  if (!match.partial_source) return match;
  QUIRE_CHECK_EQ(match.version, index_.version());
  // A shorter hit sees further back: with windows, whole blocks alone may not be enough.
  const int length = match.full_blocks * options_.block_tokens;
  if (!WindowsAreCached(*match.tip, match.full_blocks, length)) return NoMatch(match.key);
  match.tokens = length;
  match.partial_tokens = 0;
  match.partial_source.reset();
  return match;
}

void KvCache::ForEachFrameOfHit(
    const PrefixMatch& match, base::FunctionRef<void(int group, int block, FrameId)> visit) const {
  std::optional<BlockId> block = match.tip;
  for (int b = match.full_blocks - 1; b >= 0; --b, block = index_.parent(*block)) {
    for (int g = 0; g < groups(); ++g) {
      if (b >= FirstBlockInWindow(g, match.tokens)) visit(g, b, *index_.frame(*block, g));
    }
  }
}

int KvCache::CachedFramesOfHit(const PrefixMatch& match) const {
  int cached = 0;
  const auto count = [&](FrameId frame) { cached += pool_.state(frame) == FrameState::kCached; };
  ForEachFrameOfHit(match, [&](int, int, FrameId frame) { count(frame); });
  for (int g = 0; g < groups() && match.partial_source; ++g) {
    if (const auto frame = index_.frame(*match.partial_source, g)) count(*frame);
  }
  return cached;
}

int KvCache::FramesToReserve(const PrefixMatch& match, int length) const {
  return groups() * (BlocksFor(length) - match.full_blocks) + CachedFramesOfHit(match);
}

int KvCache::FramesForSequence(const KvCacheOptions& options, int length, int step_tokens) {
  int frames = 0;
  for (const LayerGroup& group : options.groups) {
    frames += BlocksHeldAtOnce(options, group, length, step_tokens);
  }
  return frames;
}

int KvCache::FramesToFinish(const PrefixMatch& match, int length, int step_tokens) const {
  int frames = CachedFramesOfHit(match);
  for (int g = 0; g < groups(); ++g) {
    const int held = match.full_blocks - FirstBlockInWindow(g, match.tokens);
    frames +=
        std::max(0, BlocksHeldAtOnce(options_, options_.groups[g], length, step_tokens) - held);
  }
  return frames;
}

int KvCache::FramesToFinish(const Lease& lease, int length, int step_tokens) const {
  int frames = 0;
  for (int g = 0; g < groups(); ++g) {
    const int held = static_cast<int>(lease.frames(g).size());
    frames +=
        std::max(0, BlocksHeldAtOnce(options_, options_.groups[g], length, step_tokens) - held);
  }
  return frames;
}

int KvCache::MaxSequenceTokens(const KvCacheOptions& options, int step_tokens) {
  int fits = 0;
  int fails = options.max_lease_tokens + 1;
  while (fails - fits > 1) {
    const int length = fits + (fails - fits) / 2;
    (FramesForSequence(options, length, step_tokens) <= options.frames ? fits : fails) = length;
  }
  return fits;
}

KvStats KvCache::stats() const {
  KvStats stats = counters_;
  stats.frames_total = pool_.frames_total();
  stats.frames_free = pool_.frames_free();
  stats.frames_cached = pool_.frames_cached();
  stats.frames_leased = pool_.frames_leased();
  stats.tokens_leased = static_cast<int64_t>(stats.frames_leased) * options_.block_tokens;
  double wasted = 0.0;
  for (const LeaseState& state : leases_) {
    if (!state.held) continue;
    const int tail = state.committed / options_.block_tokens;
    for (const GroupTable& table : state.tables) {
      for (int b = std::max(tail, table.first_block); b < static_cast<int>(table.frames.size());
           ++b) {
        const int used = std::max(0, state.committed - b * options_.block_tokens);
        // A shared tail is counted once, in shares.
        wasted +=
            static_cast<double>(options_.block_tokens - used) / pool_.references(table.frames[b]);
      }
    }
  }
  stats.tokens_wasted = static_cast<int64_t>(wasted + 0.5);
  stats.waste_bytes = static_cast<int64_t>(wasted * static_cast<double>(options_.frame_bytes) /
                                           options_.block_tokens);
  return stats;
}

}  // namespace quire::kv
