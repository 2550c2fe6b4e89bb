#include "kv/kv_cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace quire::kv {
namespace {

constexpr int kMaxGroups = 8;  // models have one or two spans; keeps lookups free of allocations

PrefixIndex::Options IndexOptions(const KvCacheOptions& options, bool has_full_group) {
  // A block has a frame, so blocks <= frames, and a root has a block or a lease. Where every layer
  // has a window, chains also run through blocks whose frames are gone.
  const int chains = has_full_group ? 0 : 2 * options.frames;
  const int blocks = 2 * options.frames + options.max_leases + chains;
  return {.blocks = options.prefix_caching == PrefixCaching::kOn ? blocks : 0,
          .block_tokens = options.block_tokens,
          .groups = static_cast<int>(options.groups.size()),
          .hash = options.hash ? options.hash : KeyedBlockHash(options.hash_key)};
}

bool AnyFullGroup(const KvCacheOptions& options) {
  return std::ranges::any_of(options.groups, [](const LayerGroup& g) { return !g.window_tokens; });
}

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

Lease::Lease(Lease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), slot_(other.slot_) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    if (cache_) cache_->ReleaseSlot(slot_);
    cache_ = std::exchange(other.cache_, nullptr);
    slot_ = other.slot_;
  }
  return *this;
}

Lease::~Lease() {
  if (cache_) cache_->ReleaseSlot(slot_);
}

int Lease::committed() const {
  return cache_->At(*this).committed;
}
int Lease::reserved() const {
  return cache_->At(*this).reserved;
}
int Lease::first_block(int group) const {
  return cache_->At(*this).tables[group].first_block;
}

std::span<const FrameId> Lease::frames(int group) const {
  const KvCache::GroupTable& table = cache_->At(*this).tables[group];
  return std::span(table.frames).subspan(table.first_block);
}

Status KvCache::Validate(const KvCacheOptions& options) {
  if (options.frames < 1) {
    return MakeError(ErrorKind::kUsage,
                     "KV memory of {} frames holds nothing; at least 1 is needed", options.frames);
  }
  if (options.frames > 1 << 28) {
    return MakeError(ErrorKind::kUsage,
                     "{} KV frames are more than the supported {}; use larger blocks",
                     options.frames, 1 << 28);
  }
  if (options.block_tokens < 1 || options.block_tokens > 1024) {
    return MakeError(ErrorKind::kUsage, "block size {} is outside 1..1024", options.block_tokens);
  }
  if (options.groups.empty() || options.groups.size() > kMaxGroups) {
    return MakeError(ErrorKind::kUsage, "{} layer groups; 1..{} are supported",
                     options.groups.size(), kMaxGroups);
  }
  for (const LayerGroup& group : options.groups) {
    if (group.window_tokens && *group.window_tokens < 1) {
      return MakeError(ErrorKind::kUsage, "a sliding window of {} tokens; at least 1 is needed",
                       *group.window_tokens);
    }
  }
  if (options.max_leases < 1 || options.max_lease_tokens < 1) {
    return MakeError(ErrorKind::kUsage, "{} sequences of {} tokens; at least 1 of each is needed",
                     options.max_leases, options.max_lease_tokens);
  }
  return Ok{};
}

KvCache::KvCache(KvCacheOptions options)
    : options_(std::move(options)),
      has_full_group_(AnyFullGroup(options_)),
      pool_(options_.frames),
      index_(IndexOptions(options_, has_full_group_)),
      leases_(options_.max_leases),
      counts_scratch_(options_.frames, 0) {
  const Status valid = Validate(options_);
  QUIRE_CHECK(valid.ok());
  for (LeaseState& state : leases_) {
    state.tables.resize(options_.groups.size());
    // Address space only: pages are touched when a sequence grows into them.
    for (GroupTable& table : state.tables) {
      table.frames.reserve(BlocksFor(options_.max_lease_tokens));
    }
  }
  for (int slot = options_.max_leases - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  copies_.reserve(static_cast<size_t>(options_.max_leases) * options_.groups.size());
}

KvCache::~KvCache() {
  QUIRE_CHECK_EQ(leases_held_, 0);
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

PrefixMatch KvCache::Match(std::span<const TokenId> tokens, const CacheKey& key) const {
  PrefixMatch best = NoMatch(key);
  if (!best.tip || tokens.size() < 2) return best;
  const int limit = static_cast<int>(tokens.size()) - 1;  // one token is left to compute
  const int block = options_.block_tokens;

  // Blocks in a row that end at the present one and have a frame, per group.
  std::array<int, kMaxGroups> runs{};
  // Whether the windows at `length` tokens lie within the runs, `full` whole blocks being walked.
  const auto covered = [&](int full, int length) {
    for (int g = 0; g < groups(); ++g) {
      if (full - FirstBlockInWindow(g, length) > runs[g]) return false;
    }
    return true;
  };

  BlockId tip = *best.tip;
  int full = 0;
  while ((full + 1) * block <= limit) {
    const auto child = index_.Find(tip, tokens.subspan(static_cast<size_t>(full) * block, block));
    if (!child) break;
    tip = *child;
    ++full;
    for (int g = 0; g < groups(); ++g) runs[g] = index_.frame(tip, g) ? runs[g] + 1 : 0;
    if (covered(full, full * block)) {
      best.full_blocks = full;
      best.tokens = full * block;
      best.tip = tip;
    }
  }
  const int rest = std::min(limit - full * block, block);
  const auto partial = index_.FindPartial(
      tip, tokens.subspan(static_cast<size_t>(full) * block, rest),
      [&](PrefixIndex::Partial candidate) {
        const int length = full * block + candidate.tokens;
        for (int g = 0; g < groups(); ++g) {
          // A window of one token sees nothing before the query: no frame is needed.
          const bool sees_block = options_.groups[g].window_tokens.value_or(2) > 1;
          if (sees_block && !index_.frame(candidate.block, g)) return false;
        }
        return covered(full, length);
      });
  if (partial && full * block + partial->tokens > best.tokens) {
    best.tokens = full * block + partial->tokens;
    best.full_blocks = full;
    best.partial_tokens = partial->tokens;
    best.tip = tip;
    best.partial_source = partial->block;
  }
  return best;
}

bool KvCache::HitIsCached(BlockId tip, int full_blocks) const {
  std::optional<BlockId> block = tip;
  for (int b = full_blocks - 1; b >= 0; --b, block = index_.parent(*block)) {
    for (int g = 0; g < groups(); ++g) {
      const int first = FirstBlockInWindow(g, full_blocks * options_.block_tokens);
      if (b >= first && !index_.frame(*block, g)) return false;
    }
  }
  return true;
}

PrefixMatch KvCache::FullBlocksOnly(PrefixMatch match) const {
  if (!match.partial_source) return match;
  QUIRE_CHECK_EQ(match.version, index_.version());
  // A shorter hit sees further back: with windows, whole blocks alone may not be enough.
  if (!HitIsCached(*match.tip, match.full_blocks)) return NoMatch(match.key);
  match.tokens -= match.partial_tokens;
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

void KvCache::EvictOne() {
  const FrameId oldest = *pool_.OldestCached();
  const BlockId block = *pool_.block(oldest);
  const int group = pool_.group(oldest);
  const bool whole = !options_.groups[group].window_tokens;
  // Without the frame of a group that sees everything the block is of no use to anybody.
  for (int g = 0; g < groups(); ++g) {
    if (g != group && !whole) continue;
    const std::optional<FrameId> frame = index_.frame(block, g);
    if (!frame) continue;
    pool_.Evict(*frame);
    ++counters_.frames_evicted;
  }
  for (int g = groups() - 1; g >= 0; --g) {
    if (g != group && whole && index_.frame(block, g)) index_.ClearFrame(block, g);
  }
  index_.ClearFrame(block, group);
}

FrameId KvCache::TakeFrame(int group) {
  if (pool_.frames_free() == 0) EvictOne();
  return pool_.Allocate(group);
}

void KvCache::AddCopy(const PendingCopy& copy) {
  pool_.Pin(copy.from);
  pool_.Pin(copy.to);
  copies_.push_back(copy);
  ++counters_.copies;
}

int KvCache::AcquireSlot() {
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  LeaseState& state = leases_[slot];
  state.held = true;
  state.publishes = options_.prefix_caching == PrefixCaching::kOn;
  state.committed = state.reserved = state.published_blocks = 0;
  ++leases_held_;
  return slot;
}

void KvCache::SetTip(LeaseState& state, std::optional<BlockId> tip) {
  if (tip) index_.Pin(*tip);
  if (state.tip) index_.Unpin(*state.tip);
  state.tip = tip;
}

void KvCache::TakeHit(LeaseState& state, const PrefixMatch& match) {
  for (int g = 0; g < groups(); ++g) {
    state.tables[g].first_block = FirstBlockInWindow(g, match.tokens);
    state.tables[g].frames.resize(match.full_blocks);
    state.tables[g].first_block = std::min(state.tables[g].first_block, match.full_blocks);
  }
  ForEachFrameOfHit(match, [&](int g, int b, FrameId frame) {
    pool_.AddReference(frame);
    state.tables[g].frames[b] = frame;
  });
  SetTip(state, match.tip ? match.tip : index_.AddRoot(match.key));
  if (!state.tip) state.publishes = false;
  state.published_blocks = match.full_blocks;
  state.reserved = match.full_blocks * options_.block_tokens;
}

std::optional<Lease> KvCache::Reserve(const PrefixMatch& match, int length) {
  QUIRE_CHECK_EQ(match.version, index_.version());
  QUIRE_CHECK_GT(length, match.tokens);
  QUIRE_CHECK_LE(length, options_.max_lease_tokens);
  if (free_slots_.empty() || FramesToReserve(match, length) > frames_available()) {
    ++counters_.reservations_failed;
    return std::nullopt;
  }
  const int slot = AcquireSlot();
  LeaseState& state = leases_[slot];
  // Hold what was found before anything is evicted to make room.
  TakeHit(state, match);
  std::array<std::optional<FrameId>, kMaxGroups> sources;
  for (int g = 0; g < groups() && match.partial_source; ++g) {
    sources[g] = index_.frame(*match.partial_source, g);
    if (sources[g]) pool_.Pin(*sources[g]);
  }
  Grow(state, length);
  for (int g = 0; g < groups() && match.partial_source; ++g) {
    if (!sources[g]) continue;
    AddCopy({.group = g,
             .from = *sources[g],
             .to = state.tables[g].frames[match.full_blocks],
             .tokens = match.partial_tokens});
    pool_.Unpin(*sources[g], std::nullopt);
  }
  state.committed = match.tokens;
  return Lease(this, slot);
}

bool KvCache::NeedsCopyOnWrite(const LeaseState& state, int group) const {
  if (state.committed % options_.block_tokens == 0) return false;
  return pool_.references(state.tables[group].frames[state.committed / options_.block_tokens]) > 1;
}

int KvCache::FramesToExtend(const LeaseState& state, int length) const {
  if (length <= state.committed) return 0;
  int frames = 0;
  for (int g = 0; g < groups(); ++g) {
    frames += std::max(0, BlocksFor(length) - static_cast<int>(state.tables[g].frames.size()));
    frames += NeedsCopyOnWrite(state, g);
  }
  return frames;
}

int KvCache::FramesToExtend(const Lease& lease, int length) const {
  return FramesToExtend(At(lease), length);
}

void KvCache::Grow(LeaseState& state, int length) {
  const size_t blocks = BlocksFor(length);
  for (int g = 0; g < groups(); ++g) {
    std::vector<FrameId>& frames = state.tables[g].frames;
    while (frames.size() < blocks) frames.push_back(TakeFrame(g));
  }
  state.reserved = std::max(state.reserved, length);
}

bool KvCache::Extend(Lease& lease, int length) {
  LeaseState& state = At(lease);
  QUIRE_CHECK_GE(length, state.committed);
  QUIRE_CHECK_LE(length, options_.max_lease_tokens);
  if (FramesToExtend(state, length) > frames_available()) {
    ++counters_.reservations_failed;
    return false;
  }
  for (int g = 0; g < groups() && length > state.committed; ++g) {
    if (!NeedsCopyOnWrite(state, g)) continue;
    FrameId& tail = state.tables[g].frames[state.committed / options_.block_tokens];
    const FrameId copy = TakeFrame(g);
    AddCopy(
        {.group = g, .from = tail, .to = copy, .tokens = state.committed % options_.block_tokens});
    pool_.DropReference(tail);
    tail = copy;
  }
  Grow(state, length);
  return true;
}

void KvCache::Commit(Lease& lease, std::span<const TokenId> tokens) {
  LeaseState& state = At(lease);
  const int length = static_cast<int>(tokens.size());
  const int block = options_.block_tokens;
  QUIRE_CHECK_GE(length, state.committed);
  QUIRE_CHECK_LE(length, state.reserved);
  QUIRE_CHECK(copies_.empty());  // what was not copied yet must not be published
  state.committed = length;
  while (state.publishes && (state.published_blocks + 1) * block <= length) {
    PublishBlock(state, tokens.subspan(static_cast<size_t>(state.published_blocks) * block, block));
  }
  LeaveWindows(state);
}

void KvCache::PublishBlock(LeaseState& state, std::span<const TokenId> tokens) {
  std::optional<BlockId> block = index_.Find(*state.tip, tokens);
  if (!block) block = index_.Add(*state.tip, tokens);
  if (!block) {  // the index is full: what follows stays private
    state.publishes = false;
    return;
  }
  SetTip(state, block);
  ShareFrames(state, *block);
  ++state.published_blocks;
}

// Gives `block` the lease's frames where it has none, and the lease the block's where both have
// one: equal tokens after equal tokens have equal KV to the last bit, so one copy is enough.
void KvCache::ShareFrames(LeaseState& state, BlockId block) {
  const int b = state.published_blocks;
  for (int g = 0; g < groups(); ++g) {
    GroupTable& table = state.tables[g];
    if (b < table.first_block) continue;
    FrameId& own = table.frames[b];
    const std::optional<FrameId> known = index_.frame(block, g);
    if (!known) {
      index_.SetFrame(block, g, own);
      pool_.SetBlock(own, block);
      ++counters_.frames_published;
    } else if (*known != own) {
      pool_.AddReference(*known);
      pool_.DropReference(own);
      own = *known;
      ++counters_.frames_merged;
    }
  }
}

void KvCache::LeaveWindows(LeaseState& state) {
  for (int g = 0; g < groups(); ++g) {
    GroupTable& table = state.tables[g];
    const int first = FirstBlockInWindow(g, state.committed);
    for (; table.first_block < first; ++table.first_block) {
      pool_.DropReference(table.frames[table.first_block]);
      ++counters_.frames_left_window;
    }
  }
}

void KvCache::Truncate(Lease& lease, int length) {
  LeaseState& state = At(lease);
  QUIRE_CHECK_GE(length, state.committed);
  QUIRE_CHECK_LE(length, state.reserved);
  const size_t blocks = BlocksFor(length);
  for (GroupTable& table : state.tables) {
    for (; table.frames.size() > blocks; table.frames.pop_back()) {
      pool_.DropReference(table.frames.back());
    }
  }
  state.reserved = length;
}

std::optional<Lease> KvCache::Fork(const Lease& lease) {
  if (free_slots_.empty()) return std::nullopt;
  const int slot = AcquireSlot();
  LeaseState& state = leases_[slot];
  const LeaseState& from = At(lease);
  state.publishes = from.publishes;
  state.committed = state.reserved = from.committed;
  state.published_blocks = from.published_blocks;
  SetTip(state, from.tip);
  const int blocks = BlocksFor(from.committed);
  for (int g = 0; g < groups(); ++g) {
    const GroupTable& source = from.tables[g];
    GroupTable& table = state.tables[g];
    table.first_block = std::min(source.first_block, blocks);
    table.frames.assign(source.frames.begin(), source.frames.begin() + blocks);
    for (int b = table.first_block; b < blocks; ++b) pool_.AddReference(table.frames[b]);
  }
  ++counters_.forks;
  return Lease(this, slot);
}

void KvCache::ReleaseSlot(int slot) {
  LeaseState& state = leases_[slot];
  QUIRE_CHECK(state.held);
  // Tail first: in the order of eviction a block then always comes before its parent.
  int blocks = 0;
  for (const GroupTable& table : state.tables) {
    blocks = std::max(blocks, static_cast<int>(table.frames.size()));
  }
  for (int b = blocks - 1; b >= 0; --b) {
    for (GroupTable& table : state.tables) {
      if (b >= table.first_block && b < static_cast<int>(table.frames.size())) {
        pool_.DropReference(table.frames[b]);
      }
    }
  }
  for (GroupTable& table : state.tables) {
    table.first_block = 0;
    table.frames.clear();
  }
  SetTip(state, std::nullopt);
  state.held = false;
  free_slots_.push_back(slot);
  --leases_held_;
}

void KvCache::Release(Lease lease) {
  QUIRE_CHECK(lease.cache_ == this);
}

void KvCache::StopPublishing(Lease& lease) {
  At(lease).publishes = false;
  SetTip(At(lease), std::nullopt);
}

int KvCache::FramesFreedByRelease(const Lease& lease) const {
  int frames = 0;
  for (const GroupTable& table : At(lease).tables) {
    for (size_t b = table.first_block; b < table.frames.size(); ++b) {
      const FrameId frame = table.frames[b];
      frames += pool_.references(frame) == 1 && pool_.pins(frame) == 0;
    }
  }
  return frames;
}

bool KvCache::FreesTogether(std::span<const Lease* const> leases) const {
  bool frees = false;
  const auto for_each_frame = [&](auto visit) {
    for (const Lease* lease : leases) {
      for (int g = 0; g < groups(); ++g) {
        for (FrameId frame : lease->frames(g)) visit(frame, counts_scratch_[frame.value]);
      }
    }
  };
  for_each_frame([&](FrameId frame, int& count) {
    frees |= ++count == pool_.references(frame) && pool_.pins(frame) == 0;
  });
  for_each_frame([](FrameId, int& count) { count = 0; });
  return frees;
}

bool KvCache::SharesTail(const Lease& lease, const Lease& other) const {
  const LeaseState& state = At(lease);
  if (state.committed % options_.block_tokens == 0) return false;
  const size_t tail = state.committed / options_.block_tokens;
  for (int g = 0; g < groups(); ++g) {
    const GroupTable& theirs = At(other).tables[g];
    if (tail < theirs.frames.size() && static_cast<int>(tail) >= theirs.first_block &&
        theirs.frames[tail] == state.tables[g].frames[tail]) {
      return true;
    }
  }
  return false;
}

void KvCache::CopiesDone() {
  for (const PendingCopy& copy : copies_) {
    // The source may become evictable only now, after its parent: it must still go first.
    std::optional<FrameId> parent_frame;
    const std::optional<BlockId> block = pool_.block(copy.from);
    if (block && !options_.groups[copy.group].window_tokens) {
      parent_frame = index_.frame(*index_.parent(*block), copy.group);
    }
    pool_.Unpin(copy.from, parent_frame);
    pool_.Unpin(copy.to, std::nullopt);
  }
  copies_.clear();
}

void KvCache::DropCached() {
  while (pool_.frames_cached() > 0) EvictOne();
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
