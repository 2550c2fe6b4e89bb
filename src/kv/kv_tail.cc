// KvCache's second table: the frames of blocks that are not sealed yet.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace quire::kv {

TailView Lease::tail(int group) const {
  const KvCache::GroupTable& table = cache_->At(*this).tables[group];
  return {table.tail_blocks, table.tail};
}

// The tail frames of a block; none if it has no tail.
std::span<const FrameId> KvCache::TailFrames(const LeaseState& state, int group, int block) const {
  const GroupTable& table = state.tables[group];
  const auto found = std::ranges::lower_bound(table.tail_blocks, block);
  if (found == table.tail_blocks.end() || *found != block) return {};
  const int frames = options_.groups[group].tail_frames;
  return std::span(table.tail).subspan((found - table.tail_blocks.begin()) * frames, frames);
}

// A step leaves open the group that holds its end, and those that unverified tokens complete.
int KvCache::FirstTailBlock(const LeaseState& state, int group, Extent extent) const {
  return std::max(SealedBlocks(extent.certain), state.tables[group].first_block);
}

int KvCache::TailFramesToGrow(const LeaseState& state, int group, Extent extent) const {
  const int frames = options_.groups[group].tail_frames;
  if (frames == 0) return 0;
  const int first = FirstTailBlock(state, group, extent);
  const auto& blocks = state.tables[group].tail_blocks;
  const auto begin = std::ranges::lower_bound(blocks, first);
  const auto end = std::ranges::lower_bound(blocks, BlocksFor(extent.length));
  const auto have = static_cast<int>(std::max<ptrdiff_t>(0, end - begin));
  return std::max(0, BlocksFor(extent.length) - first - have) * frames;
}

void KvCache::GrowTail(LeaseState& state, int group, Extent extent) {
  const int frames = options_.groups[group].tail_frames;
  if (frames == 0) return;
  GroupTable& table = state.tables[group];
  for (int b = FirstTailBlock(state, group, extent); b < BlocksFor(extent.length); ++b) {
    const auto place = std::ranges::lower_bound(table.tail_blocks, b);
    if (place != table.tail_blocks.end() && *place == b) continue;
    const ptrdiff_t index = place - table.tail_blocks.begin();
    table.tail_blocks.insert(place, b);
    for (int i = 0; i < frames; ++i) {
      table.tail.insert(table.tail.begin() + index * frames + i, TakeFrame(group));
    }
  }
}

// Gives the lease frames of its own for the block that the next token is written to.
void KvCache::CopyTailOnWrite(LeaseState& state, int group) {
  GroupTable& table = state.tables[group];
  const int block = state.committed / options_.block_tokens;
  const int frames = options_.groups[group].tail_frames;
  const ptrdiff_t index =
      std::ranges::lower_bound(table.tail_blocks, block) - table.tail_blocks.begin();
  for (FrameId& shared : std::span(table.tail).subspan(index * frames, frames)) {
    const FrameId copy = TakeFrame(group);
    AddCopy({.group = group,
             .from = shared,
             .to = copy,
             .tokens = state.committed % options_.block_tokens,
             .role = FrameRole::kTail});
    pool_.DropReference(shared);
    shared = copy;
  }
}

void KvCache::ShareTail(LeaseState& state, int group, const LeaseState& from) {
  const GroupTable& source = from.tables[group];
  GroupTable& table = state.tables[group];
  const auto blocks = std::ranges::lower_bound(source.tail_blocks, BlocksFor(from.committed)) -
                      source.tail_blocks.begin();
  table.tail_blocks.assign(source.tail_blocks.begin(), source.tail_blocks.begin() + blocks);
  table.tail.assign(source.tail.begin(),
                    source.tail.begin() + blocks * options_.groups[group].tail_frames);
  for (FrameId frame : table.tail) pool_.AddReference(frame);
}

// Gives back the tails of blocks [from, to).
void KvCache::DropTail(LeaseState& state, int group, int from, int to) {
  GroupTable& table = state.tables[group];
  const int frames = options_.groups[group].tail_frames;
  const auto place = [&](int block) {
    return std::ranges::lower_bound(table.tail_blocks, block) - table.tail_blocks.begin();
  };
  const ptrdiff_t begin = place(from);
  const ptrdiff_t end = std::max(begin, place(to));
  for (ptrdiff_t i = begin * frames; i < end * frames; ++i) pool_.DropReference(table.tail[i]);
  table.tail_blocks.erase(table.tail_blocks.begin() + begin, table.tail_blocks.begin() + end);
  table.tail.erase(table.tail.begin() + begin * frames, table.tail.begin() + end * frames);
}

// Every committed token that is not sealed and still in the window lies in the tail; nothing sealed
// does; and what is not committed is nobody else's.
void KvCache::CheckTail(const LeaseState& state, int group, std::vector<int>& references) const {
  const GroupTable& table = state.tables[group];
  const int frames = options_.groups[group].tail_frames;
  QUIRE_CHECK_EQ(table.tail.size(), table.tail_blocks.size() * frames);
  QUIRE_CHECK(std::ranges::is_sorted(table.tail_blocks, std::less_equal()));
  if (frames == 0) return;
  const int sealed = std::max(SealedBlocks(state.committed), table.first_block);
  for (int b = sealed; b < BlocksFor(state.committed); ++b) {
    QUIRE_CHECK(!TailFrames(state, group, b).empty());
  }
  for (size_t i = 0; i < table.tail.size(); ++i) {
    const FrameId frame = table.tail[i];
    const int block = table.tail_blocks[i / frames];
    QUIRE_CHECK_GE(block, sealed);
    QUIRE_CHECK_LT(block, BlocksFor(state.reserved));
    ++references[frame.value];
    QUIRE_CHECK(pool_.state(frame) == FrameState::kLeased);
    QUIRE_CHECK_EQ(pool_.group(frame), group);
    QUIRE_CHECK(!pool_.block(frame).has_value());
    const int of_block = block * options_.block_tokens;
    if (of_block >= state.committed) QUIRE_CHECK_EQ(pool_.references(frame), 1);
    // A block is shared as a whole.
    QUIRE_CHECK_EQ(pool_.references(frame), pool_.references(table.tail[i / frames * frames]));
  }
}

}  // namespace quire::kv
