// KvCache's private leases: what a sequence holds that has evicted tokens.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace quire::kv {

int KvCache::FramesHeld(const LeaseState& state) const {
  size_t frames = 0;
  for (const GroupTable& table : state.tables) {
    frames += table.frames.size() - std::min<size_t>(table.first_block, table.frames.size());
    frames += table.tail.size();
  }
  return static_cast<int>(frames);
}

int KvCache::FramesPledgedTo(const LeaseState& state) const {
  return std::max(0, state.pledge - FramesHeld(state));
}

int KvCache::frames_pledged() const {
  int frames = 0;
  for (int slot : private_slots_) frames += FramesPledgedTo(leases_[slot]);
  return frames;
}

int KvCache::FramesToReservePrivate(int length_max) const {
  return FramesForSequence(options_, length_max, 1);
}

std::optional<Lease> KvCache::ReservePrivate(int length, int length_max) {
  QUIRE_CHECK_GE(length_max, length);
  QUIRE_CHECK(!has_windows_);
  const int frames = FramesToReservePrivate(length_max);
  if (free_slots_.empty() || frames > frames_available()) {
    ++counters_.reservations_failed;
    return std::nullopt;
  }
  const int slot = AcquireSlot();
  LeaseState& state = leases_[slot];
  state.publishes = false;
  Grow(state, {.length = length, .certain = length});
  state.pledge = frames;
  private_slots_.push_back(slot);
  QUIRE_CHECK_LE(FramesHeld(state), frames);
  return Lease(this, slot);
}

void KvCache::CommitPrivate(Lease& lease, int length) {
  LeaseState& state = At(lease);
  QUIRE_CHECK(is_private(lease));
  QUIRE_CHECK_GE(length, state.committed);
  QUIRE_CHECK_LE(length, state.reserved);
  state.committed = length;
  for (int g = 0; g < groups(); ++g) DropTail(state, g, 0, SealedBlocks(length));
}

void KvCache::Shrink(Lease& lease, int length) {
  LeaseState& state = At(lease);
  QUIRE_CHECK(is_private(lease));
  QUIRE_CHECK_LE(length, state.committed);
  if (has_tail()) QUIRE_CHECK_EQ(length % options_.residual_tokens, 0);
  state.committed = length;
  Truncate(lease, length);
}

}  // namespace quire::kv
