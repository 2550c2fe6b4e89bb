// KvCache::CheckInvariants: recounts from the leases, the index and the pool, each against the
// others.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace quire::kv {

void KvCache::CheckLease(const LeaseState& state, std::vector<int>& references,
                         std::vector<int>& block_pins) const {
  QUIRE_CHECK_LE(state.committed, state.reserved);
  if (state.tip) {
    ++block_pins[state.tip->value];
    QUIRE_CHECK_EQ(index_.depth(*state.tip), state.published_blocks);
  }
  if (state.publishes) {
    QUIRE_CHECK(state.tip.has_value());
    QUIRE_CHECK_EQ(state.pledge, 0);
  }
  if (state.pledge > 0) QUIRE_CHECK_LE(FramesHeld(state), state.pledge);
  // A hit that ends inside a block has committed tokens only once its copy was planned.
  const int full_blocks = SealedBlocks(state.committed);
  QUIRE_CHECK_LE(state.published_blocks, full_blocks);
  if (state.publishes) QUIRE_CHECK_EQ(state.published_blocks, full_blocks);
  for (int g = 0; g < groups(); ++g) {
    const GroupTable& table = state.tables[g];
    QUIRE_CHECK_EQ(static_cast<int>(table.frames.size()), BodyFrames(g, state.reserved));
    QUIRE_CHECK_LE(table.first_block, FirstBlockInWindow(g, state.committed));
    CheckTail(state, g, references);
    for (int b = table.first_block; b < static_cast<int>(table.frames.size()); ++b) {
      const FrameId frame = table.frames[b];
      ++references[frame.value];
      QUIRE_CHECK(pool_.state(frame) == FrameState::kLeased);
      QUIRE_CHECK_EQ(pool_.group(frame), g);
      const std::optional<BlockId> block = pool_.block(frame);
      // What may still be written is unpublished, and beyond the partly filled block nobody shares
      // it; what is sealed later belongs to one lease.
      if (b >= full_blocks) QUIRE_CHECK(!block.has_value());
      if (b * options_.block_tokens >= state.committed || (has_tail() && b >= full_blocks)) {
        QUIRE_CHECK_EQ(pool_.references(frame), 1);
      }
      if (b < state.published_blocks && state.publishes) {
        QUIRE_CHECK(block.has_value());
        QUIRE_CHECK_EQ(index_.depth(*block), b + 1);
      }
    }
  }
  // The published part of the lease is the chain that ends in the tip.
  std::optional<BlockId> block = state.tip;
  for (int b = state.published_blocks - 1; block && b >= 0; --b, block = index_.parent(*block)) {
    for (int g = 0; g < groups(); ++g) {
      if (!state.tables[g].has_body(b)) continue;
      QUIRE_CHECK(index_.frame(*block, g) == state.tables[g].frames[b]);
    }
  }
}

void KvCache::CheckFrames(std::span<const int> references, std::span<const int> pins) const {
  for (int i = 0; i < pool_.frames_total(); ++i) {
    const FrameId frame{i};
    QUIRE_CHECK_EQ(pool_.references(frame), references[i]);
    QUIRE_CHECK_EQ(pool_.pins(frame), pins[i]);
    if (const std::optional<BlockId> block = pool_.block(frame)) {
      QUIRE_CHECK(index_.frame(*block, pool_.group(frame)) == frame);
    }
  }
  QUIRE_CHECK_EQ(pool_.frames_free() + pool_.frames_cached() + pool_.frames_leased(),
                 options_.frames);
  if (leases_held_ == 0 && copies_.empty()) QUIRE_CHECK_EQ(pool_.frames_leased(), 0);
}

void KvCache::CheckBlocks(std::span<const int> block_pins) const {
  index_.ForEach([&](BlockId id) {
    QUIRE_CHECK_EQ(index_.pins(id), block_pins[id.value]);
    const std::optional<BlockId> parent = index_.parent(id);
    for (int g = 0; g < groups(); ++g) {
      const std::optional<FrameId> frame = index_.frame(id, g);
      if (frame) QUIRE_CHECK(pool_.block(*frame) == id);
      if (!parent || options_.groups[g].window_tokens) continue;
      if (index_.depth(id) > BlocksIn(options_.groups[g], index_.depth(id))) {
        QUIRE_CHECK(!frame.has_value());  // only the first block has sinks
        continue;
      }
      // A block is of use only with the whole chain before it.
      QUIRE_CHECK(frame.has_value());
      if (index_.depth(*parent) > 0) QUIRE_CHECK(index_.frame(*parent, g).has_value());
    }
  });
}

// Where a group sees everything, a cached block is evicted before its parent.
void KvCache::CheckEvictionOrder() const {
  std::vector<int> order(options_.frames, 0);
  int place = 0;
  for (auto frame = pool_.OldestCached(); frame; frame = pool_.NextCached(*frame)) {
    order[frame->value] = ++place;
  }
  for (auto frame = pool_.OldestCached(); frame; frame = pool_.NextCached(*frame)) {
    const int group = pool_.group(*frame);
    const std::optional<BlockId> parent = index_.parent(*pool_.block(*frame));
    if (options_.groups[group].window_tokens || !parent || index_.depth(*parent) == 0) continue;
    const FrameId parent_frame = *index_.frame(*parent, group);
    if (pool_.state(parent_frame) != FrameState::kCached) continue;
    QUIRE_CHECK_LT(order[frame->value], order[parent_frame.value]);
  }
}

void KvCache::CheckInvariants() const {
  pool_.CheckInvariants();
  index_.CheckInvariants();
  std::vector<int> references(options_.frames, 0);
  std::vector<int> pins(options_.frames, 0);
  std::vector<int> block_pins(index_.capacity(), 0);
  int held = 0;
  for (const LeaseState& state : leases_) {
    if (!state.held) continue;
    ++held;
    CheckLease(state, references, block_pins);
  }
  QUIRE_CHECK_EQ(held, leases_held_);
  QUIRE_CHECK_GE(frames_available(), 0);
  QUIRE_CHECK_EQ(held + static_cast<int>(free_slots_.size()), options_.max_leases);
  for (const PendingCopy& copy : copies_) {
    ++pins[copy.from.value];
    ++pins[copy.to.value];
    QUIRE_CHECK_EQ(pool_.group(copy.from), copy.group);
    QUIRE_CHECK_EQ(pool_.group(copy.to), copy.group);
    QUIRE_CHECK_GT(copy.tokens, 0);
    QUIRE_CHECK_LT(copy.tokens, options_.block_tokens);
  }
  CheckFrames(references, pins);
  CheckBlocks(block_pins);
  CheckEvictionOrder();
}

}  // namespace quire::kv
