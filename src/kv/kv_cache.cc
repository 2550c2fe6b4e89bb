#include "kv/kv_cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace quire::kv {
namespace {

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

int WindowGroups(const KvCacheOptions& options) {
  return static_cast<int>(std::ranges::count_if(
      options.groups, [](const LayerGroup& g) { return g.window_tokens.has_value(); }));
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
  // Blocks may leave the window before they are sealed.
  const size_t first = std::min<size_t>(table.first_block, table.frames.size());
  return std::span(table.frames).subspan(first);
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
  if (options.groups.empty() || options.groups.size() > static_cast<size_t>(kMaxGroups)) {
    return MakeError(ErrorKind::kUsage, "{} layer groups; 1..{} are supported",
                     options.groups.size(), kMaxGroups);
  }
  if (options.residual_tokens < 0 || options.residual_tokens % options.block_tokens != 0) {
    return MakeError(ErrorKind::kUsage,
                     "residual groups of {} tokens; a multiple of the block size {} is needed",
                     options.residual_tokens, options.block_tokens);
  }
  for (const LayerGroup& group : options.groups) {
    const bool needs_tail = options.residual_tokens > 0 && group.blocks == GroupBlocks::kAll;
    if (group.tail_frames < 0 || (group.tail_frames > 0) != needs_tail) {
      return MakeError(ErrorKind::kUsage,
                       "{} frames for an unsealed block of a layer group {} tail",
                       group.tail_frames, needs_tail ? "with a" : "without");
    }
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
      has_full_group_(WindowGroups(options_) < static_cast<int>(options_.groups.size())),
      has_windows_(WindowGroups(options_) > 0),
      pool_(options_.frames),
      index_(IndexOptions(options_, has_full_group_)),
      leases_(options_.max_leases),
      counts_scratch_(options_.frames, 0) {
  const Status valid = Validate(options_);
  QUIRE_CHECK(valid.ok());
  for (LeaseState& state : leases_) {
    state.tables.resize(options_.groups.size());
    // Address space only: pages are touched when a sequence grows into them.
    const int open_blocks = 2 * options_.residual_tokens / options_.block_tokens + 1;
    for (int g = 0; g < groups(); ++g) {
      GroupTable& table = state.tables[g];
      table.frames.reserve(BodyFrames(g, options_.max_lease_tokens));
      if (!has_tail()) continue;
      table.tail_blocks.reserve(open_blocks);
      table.tail.reserve(static_cast<size_t>(open_blocks) * options_.groups[g].tail_frames);
    }
  }
  for (int slot = options_.max_leases - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  size_t copied_frames = 0;
  for (const LayerGroup& group : options_.groups) copied_frames += std::max(1, group.tail_frames);
  copies_.reserve(options_.max_leases * copied_frames);
}

KvCache::~KvCache() {
  QUIRE_CHECK_EQ(leases_held_, 0);
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
  if (whole) UnpublishBelow(block);
  for (int g = groups() - 1; g >= 0; --g) {
    if (g != group && whole && index_.frame(block, g)) index_.ClearFrame(block, g);
  }
  index_.ClearFrame(block, group);
}

// Of an evicted block's descendants only sources of pending copies can be left: all that was cached
// went before it, and a lease would hold it too. They are free once copied.
void KvCache::UnpublishBelow(BlockId block) {
  while (const std::optional<BlockId> child = index_.newest_child(block)) {
    UnpublishBelow(*child);
    for (int g = 0; g < groups(); ++g) {
      const std::optional<FrameId> frame = index_.frame(*child, g);
      if (!frame) continue;
      QUIRE_CHECK_EQ(pool_.references(*frame), 0);
      if (pool_.state(*frame) == FrameState::kCached) {
        pool_.Evict(*frame);
        ++counters_.frames_evicted;
      } else {
        pool_.SetBlock(*frame, std::nullopt);
      }
      index_.ClearFrame(*child, g);  // the last one erases the child
    }
  }
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
    state.tables[g].frames.resize(BlocksIn(options_.groups[g], match.full_blocks));
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
  state.committed = match.tokens;
  Grow(state, {.length = length, .certain = length});
  for (int g = 0; g < groups() && match.partial_source; ++g) {
    if (!sources[g]) continue;
    AddCopy({.group = g,
             .from = *sources[g],
             .to = state.tables[g].frames[match.full_blocks],
             .tokens = match.partial_tokens});
    pool_.Unpin(*sources[g], std::nullopt);
  }
  return Lease(this, slot);
}

// Whether the block that the next token is written to is partly filled and shared.
bool KvCache::NeedsCopyOnWrite(const LeaseState& state, int group) const {
  if (state.committed % options_.block_tokens == 0) return false;
  const auto frame = FrameOfPartBlock(state, group, state.committed / options_.block_tokens);
  return frame && pool_.references(*frame) > 1;
}

int KvCache::FramesToExtend(const LeaseState& state, Extent extent) const {
  if (extent.length <= state.committed) return 0;
  int frames = 0;
  for (int g = 0; g < groups(); ++g) {
    const GroupTable& table = state.tables[g];
    // Blocks that left the window before they were sealed get no frame any more.
    const int have = std::max(table.first_block, static_cast<int>(table.frames.size()));
    frames += std::max(0, BodyFrames(g, extent.length) - have);
    frames += TailFramesToGrow(state, g, extent);
    if (NeedsCopyOnWrite(state, g)) frames += std::max(1, options_.groups[g].tail_frames);
  }
  return frames;
}

int KvCache::LongestExtension(const Lease& lease, int length) const {
  return Longest(lease.committed(), length,
                 [&](int tokens) { return FramesToExtend(lease, tokens) <= frames_available(); });
}

void KvCache::Grow(LeaseState& state, Extent extent) {
  for (int g = 0; g < groups(); ++g) {
    GroupTable& table = state.tables[g];
    const int blocks = BodyFrames(g, extent.length);
    while (static_cast<int>(table.frames.size()) < blocks) {
      const bool left_window = static_cast<int>(table.frames.size()) < table.first_block;
      table.frames.push_back(left_window ? FrameId{} : TakeFrame(g));
    }
    GrowTail(state, g, extent);
  }
  state.reserved = std::max(state.reserved, extent.length);
}

bool KvCache::Extend(Lease& lease, int length, int unverified) {
  LeaseState& state = At(lease);
  const Extent extent{.length = length, .certain = length - unverified};
  QUIRE_CHECK_GE(extent.certain, state.committed);
  QUIRE_CHECK_LE(length, options_.max_lease_tokens);
  if (FramesToExtend(lease, length, unverified) > frames_available()) {
    ++counters_.reservations_failed;
    return false;
  }
  if (length == state.committed) return true;
  for (int g = 0; g < groups(); ++g) {
    if (!NeedsCopyOnWrite(state, g)) continue;
    if (has_tail()) {
      CopyTailOnWrite(state, g);
      continue;
    }
    FrameId& shared = state.tables[g].frames[state.committed / options_.block_tokens];
    const FrameId copy = TakeFrame(g);
    AddCopy({.group = g,
             .from = shared,
             .to = copy,
             .tokens = state.committed % options_.block_tokens});
    pool_.DropReference(shared);
    shared = copy;
  }
  Grow(state, extent);
  return true;
}

void KvCache::Commit(Lease& lease, std::span<const TokenId> tokens) {
  LeaseState& state = At(lease);
  const int length = static_cast<int>(tokens.size());
  const int block = options_.block_tokens;
  const int sealed = SealedBlocks(length);
  QUIRE_CHECK_GE(length, state.committed);
  QUIRE_CHECK_LE(length, state.reserved);
  QUIRE_CHECK(copies_.empty());  // what was not copied yet must not be published
  state.committed = length;
  while (state.publishes && state.published_blocks < sealed) {
    PublishBlock(state, tokens.subspan(static_cast<size_t>(state.published_blocks) * block, block));
  }
  for (int g = 0; g < groups(); ++g) DropTail(state, g, 0, sealed);
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
    if (!table.has_body(b)) continue;
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
    DropTail(state, g, 0, first);
    for (; table.first_block < first; ++table.first_block) {
      if (!table.has_body(table.first_block)) continue;
      pool_.DropReference(table.frames[table.first_block]);
      ++counters_.frames_left_window;
    }
  }
}

void KvCache::Truncate(Lease& lease, int length) {
  LeaseState& state = At(lease);
  QUIRE_CHECK_GE(length, state.committed);
  QUIRE_CHECK_LE(length, state.reserved);
  for (int g = 0; g < groups(); ++g) {
    GroupTable& table = state.tables[g];
    for (; static_cast<int>(table.frames.size()) > BodyFrames(g, length); table.frames.pop_back()) {
      const int last = static_cast<int>(table.frames.size()) - 1;
      if (table.has_body(last)) pool_.DropReference(table.frames.back());
    }
    DropTail(state, g, BlocksFor(length), BlocksFor(state.reserved));
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
  for (int g = 0; g < groups(); ++g) {
    const GroupTable& source = from.tables[g];
    GroupTable& table = state.tables[g];
    const int blocks = BodyFrames(g, from.committed);
    table.first_block = source.first_block;
    table.frames.assign(source.frames.begin(), source.frames.begin() + blocks);
    for (int b = table.first_block; b < blocks; ++b) pool_.AddReference(table.frames[b]);
    ShareTail(state, g, from);
  }
  ++counters_.forks;
  return Lease(this, slot);
}

void KvCache::ReleaseSlot(int slot) {
  LeaseState& state = leases_[slot];
  QUIRE_CHECK(state.held);
  // Tail first: in the order of eviction a block then always comes before its parent.
  int blocks = 0;
  for (int g = 0; g < groups(); ++g) {
    DropTail(state, g, 0, BlocksFor(state.reserved));
    blocks = std::max(blocks, static_cast<int>(state.tables[g].frames.size()));
  }
  for (int b = blocks - 1; b >= 0; --b) {
    for (GroupTable& table : state.tables) {
      if (table.has_body(b)) pool_.DropReference(table.frames[b]);
    }
  }
  for (GroupTable& table : state.tables) {
    table.first_block = 0;
    table.frames.clear();
  }
  SetTip(state, std::nullopt);
  if (state.pledge > 0) std::erase(private_slots_, slot);
  state.pledge = 0;
  state.held = false;
  free_slots_.push_back(slot);
  --leases_held_;
}

void KvCache::Release(Lease lease) {
  QUIRE_CHECK(lease.cache_ == this);
}

int KvCache::FramesFreedByRelease(const Lease& lease) const {
  int frames = 0;
  ForEachFrame(lease, [&](FrameId frame) {
    frames += pool_.references(frame) == 1 && pool_.pins(frame) == 0;
  });
  return frames;
}

bool KvCache::FreesTogether(std::span<const Lease* const> leases) const {
  bool frees = false;
  for (const Lease* lease : leases) {
    ForEachFrame(*lease, [&](FrameId frame) {
      frees |= ++counts_scratch_[frame.value] == pool_.references(frame) && pool_.pins(frame) == 0;
    });
  }
  for (const Lease* lease : leases) {
    ForEachFrame(*lease, [&](FrameId frame) { counts_scratch_[frame.value] = 0; });
  }
  return frees;
}

void KvCache::ForEachFrame(const Lease& lease, base::FunctionRef<void(FrameId)> visit) const {
  for (int g = 0; g < groups(); ++g) {
    for (FrameId frame : lease.frames(g)) visit(frame);
    for (FrameId frame : lease.tail(g).frames) visit(frame);
  }
}

bool KvCache::SharesTail(const Lease& lease, const Lease& other) const {
  const LeaseState& state = At(lease);
  if (state.committed % options_.block_tokens == 0) return false;
  const int block = state.committed / options_.block_tokens;
  for (int g = 0; g < groups(); ++g) {
    const auto frame = FrameOfPartBlock(state, g, block);
    if (frame && frame == FrameOfPartBlock(At(other), g, block)) return true;
  }
  return false;
}

// A frame that stands for all those of an unsealed or partly filled block.
std::optional<FrameId> KvCache::FrameOfPartBlock(const LeaseState& state, int group,
                                                 int block) const {
  const GroupTable& table = state.tables[group];
  if (!has_tail()) return table.has_body(block) ? std::optional(table.frames[block]) : std::nullopt;
  const std::span<const FrameId> frames = TailFrames(state, group, block);
  return frames.empty() ? std::nullopt : std::optional(frames.front());
}

void KvCache::CopiesDone() {
  // Parents first: a source then finds its parent's place in the order of eviction. (An insertion
  // sort: few copies, stable, and nothing is allocated.)
  const auto depth = [&](const PendingCopy& copy) {
    const std::optional<BlockId> block = pool_.block(copy.from);
    return block ? index_.depth(*block) : 0;
  };
  for (size_t i = 1; i < copies_.size(); ++i) {
    for (size_t j = i; j > 0 && depth(copies_[j]) < depth(copies_[j - 1]); --j) {
      std::swap(copies_[j], copies_[j - 1]);
    }
  }
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

}  // namespace quire::kv
