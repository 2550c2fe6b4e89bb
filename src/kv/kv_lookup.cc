// KvCache's questions: what is cached, what would something take, what is the state. None changes
// anything.
#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace quire::kv {
int KvCache::BlocksFor(const KvCacheOptions& options, int tokens) {
  return (tokens + options.block_tokens - 1) / options.block_tokens;
}

int KvCache::SealTokens(const KvCacheOptions& options) {
  return std::max(options.residual_tokens, options.block_tokens);
}

int KvCache::SealedBlocks(const KvCacheOptions& options, int tokens) {
  const int group = SealTokens(options);
  return tokens / group * (group / options.block_tokens);
}

// Without a tail a block's frame is written from its first token on.
int KvCache::BodyBlocks(const KvCacheOptions& options, int tokens) {
  return options.residual_tokens > 0 ? SealedBlocks(options, tokens) : BlocksFor(options, tokens);
}

int KvCache::BlocksIn(const LayerGroup& group, int blocks) {
  return group.blocks == GroupBlocks::kFirst ? std::min(1, blocks) : blocks;
}

// The most frames of `group` a sequence of `length` tokens holds at once.
int KvCache::FramesHeldAtOnce(const KvCacheOptions& options, const LayerGroup& group, int length,
                              int step_tokens) {
  const int block = options.block_tokens;
  int64_t touched = std::numeric_limits<int>::max();
  if (group.window_tokens) {
    // A run of n tokens touches at most ceil((n - 1) / block) + 1 blocks.
    const int64_t run = static_cast<int64_t>(*group.window_tokens) - 1 + step_tokens;
    touched = (run + block - 2) / block + 1;
  }
  const auto within = [&](int blocks) {
    return static_cast<int>(std::min<int64_t>(blocks, touched));
  };
  const int body = BlocksIn(group, BodyBlocks(options, length));
  if (group.tail_frames == 0) return within(body);

  // A step that completes a group still holds its tail, and the tail of the group it begins.
  const int group_blocks = options.residual_tokens / block;
  const int begun = std::min(group_blocks, (step_tokens - 1 + block - 1) / block);
  const int open = BlocksFor(options, length) - body;
  const int last_tail = std::max(open, body > 0 ? group_blocks + std::min(open, begun) : 0);
  const int last = within(body) + group.tail_frames * within(last_tail);
  if (body < 2 * group_blocks) return last;
  const int before = within(body - group_blocks) + group.tail_frames * within(group_blocks + begun);
  return std::max(last, before);
}

// The largest n in (from, to] for which fits(n), or `from`. More tokens of an open residual group
// take more frames; the token that completes it needs none of them. So the ends of groups are
// searched first, then the group that follows.
int KvCache::Longest(int from, int to, base::FunctionRef<bool(int)> fits) const {
  if (to > from && fits(to)) return to;
  const auto search = [&](int good, int bad, int unit) {
    while (bad - good > 1) {
      const int middle = good + (bad - good) / 2;
      (fits(middle * unit) ? good : bad) = middle;
    }
    return good;
  };
  const int unit = seal_tokens();
  const int ends = search(from / unit, to / unit + 1, unit);
  return search(std::max(from, ends * unit), std::min(to, (ends + 1) * unit), 1);
}

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
      if (b < FirstBlockInWindow(g, length) || b >= BlocksIn(options_.groups[g], full)) continue;
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

  // Whole blocks as far as they go, residual groups where there is a tail. Blocks in a row that
  // have a frame, per group:
  std::array<int, kMaxGroups> runs{};
  BlockId tip = *best.tip;
  int full = 0;
  while ((full + 1) * block <= limit) {
    const auto child = index_.Find(tip, tokens.subspan(static_cast<size_t>(full) * block, block));
    if (!child) break;
    tip = *child;
    ++full;
    bool covered = full * block % seal_tokens() == 0;
    for (int g = 0; g < groups(); ++g) {
      const int blocks = BlocksIn(options_.groups[g], full);
      if (blocks == full) runs[g] = index_.frame(tip, g) ? runs[g] + 1 : 0;
      covered &= blocks - FirstBlockInWindow(g, full * block) <= runs[g];
    }
    if (covered) {
      best.full_blocks = full;
      best.tokens = full * block;
      best.tip = tip;
    }
  }
  if (has_tail()) return best;
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
      const bool sees_block = options_.groups[g].window_tokens.value_or(2) > 1 &&
                              full < BlocksIn(options_.groups[g], full + 1);
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
      if (b < FirstBlockInWindow(g, match.tokens)) continue;
      if (b < BlocksIn(options_.groups[g], match.full_blocks))
        visit(g, b, *index_.frame(*block, g));
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
  int frames = CachedFramesOfHit(match);
  for (int g = 0; g < groups(); ++g) {
    frames += BodyFrames(g, length) - BlocksIn(options_.groups[g], match.full_blocks);
    const int open = BlocksFor(length) - SealedBlocks(length);
    frames += open * options_.groups[g].tail_frames;
  }
  return frames;
}

int KvCache::LongestReservation(const PrefixMatch& match, int length) const {
  return Longest(match.tokens, length,
                 [&](int tokens) { return FramesToReserve(match, tokens) <= frames_available(); });
}

// Beyond what is kept free for a private lease.
int KvCache::FramesToExtend(const Lease& lease, int length, int unverified) const {
  const LeaseState& state = At(lease);
  const int frames = FramesToExtend(state, {.length = length, .certain = length - unverified});
  return std::max(0, frames - FramesPledgedTo(state));
}

int KvCache::FramesForSequence(const KvCacheOptions& options, int length, int step_tokens) {
  int frames = 0;
  for (const LayerGroup& group : options.groups) {
    frames += FramesHeldAtOnce(options, group, length, step_tokens);
  }
  return frames;
}

int KvCache::FramesToFinish(const PrefixMatch& match, int length, int step_tokens) const {
  int frames = CachedFramesOfHit(match);
  for (int g = 0; g < groups(); ++g) {
    const LayerGroup& group = options_.groups[g];
    const int blocks = BlocksIn(group, match.full_blocks);
    const int held = std::max(0, blocks - FirstBlockInWindow(g, match.tokens));
    // Of a window's first block nothing is taken once it was left.
    if (group.blocks == GroupBlocks::kFirst && blocks > 0) continue;
    frames += std::max(0, FramesHeldAtOnce(options_, group, length, step_tokens) - held);
  }
  return frames;
}

int KvCache::FramesToFinish(const Lease& lease, int length, int step_tokens) const {
  if (is_private(lease)) return 0;
  int frames = 0;
  for (int g = 0; g < groups(); ++g) {
    const LayerGroup& group = options_.groups[g];
    const GroupTable& table = At(lease).tables[g];
    if (group.blocks == GroupBlocks::kFirst && !table.frames.empty()) continue;
    const int held = static_cast<int>(lease.frames(g).size() + table.tail.size());
    frames += std::max(0, FramesHeldAtOnce(options_, group, length, step_tokens) - held);
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
  // A shared frame is counted once, in shares.
  double slots = static_cast<double>(stats.frames_leased) * options_.block_tokens;
  double wasted = 0.0;         // tokens
  double wasted_frames = 0.0;  // the same in frames
  for (const LeaseState& state : leases_) {
    if (!state.held) continue;
    for (int g = 0; g < groups(); ++g) {
      const WasteOfGroup waste = WasteOf(state, g);
      slots -= waste.frames_without_slots * options_.block_tokens;
      wasted += waste.tokens;
      wasted_frames += waste.frames;
    }
  }
  stats.tokens_leased = static_cast<int64_t>(slots + 0.5);
  stats.tokens_wasted = static_cast<int64_t>(wasted + 0.5);
  stats.waste_bytes =
      static_cast<int64_t>(wasted_frames * static_cast<double>(options_.frame_bytes));
  return stats;
}

KvCache::WasteOfGroup KvCache::WasteOf(const LeaseState& state, int group) const {
  const GroupTable& table = state.tables[group];
  const int block = options_.block_tokens;
  const int tail_frames = options_.groups[group].tail_frames;
  const auto unused = [&](int b) {
    return block - std::clamp(state.committed - b * block, 0, block);
  };
  WasteOfGroup waste;
  const auto add = [&](double tokens, int frames) {
    waste.tokens += tokens;
    waste.frames += tokens * frames / block;
  };
  const auto share = [&](FrameId frame) { return 1.0 / pool_.references(frame); };
  const bool sinks = options_.groups[group].blocks == GroupBlocks::kFirst;
  for (int b = SealedBlocks(state.committed); b < static_cast<int>(table.frames.size()); ++b) {
    if (!table.has_body(b) || sinks) continue;
    // Of a block that is not sealed yet the body holds nothing.
    add((has_tail() ? block : unused(b)) * share(table.frames[b]), 1);
  }
  for (size_t i = 0; i < table.tail_blocks.size(); ++i) {
    const double part = share(table.tail[i * tail_frames]);
    add(unused(table.tail_blocks[i]) * part, tail_frames);
    waste.frames_without_slots += (tail_frames - 1) * part;
  }
  if (sinks && table.has_body(0)) waste.frames_without_slots += share(table.frames[0]);
  return waste;
}

}  // namespace quire::kv
