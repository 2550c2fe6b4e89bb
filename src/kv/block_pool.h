// BlockPool: the frames of the KV arena and the state each of them is in.
//
// Owns the states, the free list and the order of eviction; knows no tokens and no sequences. Only
// KvCache calls it. A frame is free, cached (published, nobody holds it) or leased (references or
// pins); the three sum to the total. References count the leases that list the frame; pins count
// pending copies that read or write it. Every call is O(1), nothing allocates after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/index_list.h"

namespace quire::kv {

enum class FrameState : uint8_t { kFree, kCached, kLeased };

class BlockPool {
 public:
  explicit BlockPool(int frames);

  int frames_total() const { return static_cast<int>(frames_.size()); }
  int frames_free() const { return free_.size(); }
  int frames_cached() const { return cached_.size(); }
  int frames_leased() const { return frames_total() - frames_free() - frames_cached(); }

  FrameState state(FrameId frame) const { return At(frame).state; }
  int references(FrameId frame) const { return At(frame).references; }
  int pins(FrameId frame) const { return At(frame).pins; }
  int group(FrameId frame) const { return At(frame).group; }
  std::optional<BlockId> block(FrameId frame) const { return At(frame).block; }

  // Takes a free frame for `group` with one reference. There must be one.
  FrameId Allocate(int group);

  void AddReference(FrameId frame);
  void DropReference(FrameId frame);
  void Pin(FrameId frame);
  // `successor`: a cached frame that must be evicted after this one, should it become cached now.
  void Unpin(FrameId frame, std::optional<FrameId> successor);

  // The frame now holds published block `block` (held, or about to be evicted: nullopt).
  void SetBlock(FrameId frame, std::optional<BlockId> block) { At(frame).block = block; }

  // The frame to evict next: least recently held.
  std::optional<FrameId> OldestCached() const;
  std::optional<FrameId> NextCached(FrameId frame) const;
  // Cached -> free.
  void Evict(FrameId frame);

  // Recounts lists against states; aborts on a difference.
  void CheckInvariants() const;

 private:
  struct Frame {
    int32_t references = 0;
    int32_t pins = 0;
    int32_t group = 0;
    FrameState state = FrameState::kFree;
    std::optional<BlockId> block;
  };

  Frame& At(FrameId frame) { return frames_[frame.value]; }
  const Frame& At(FrameId frame) const { return frames_[frame.value]; }
  void MakeLeased(FrameId frame);
  void LetGo(FrameId frame, std::optional<FrameId> successor);

  std::vector<Frame> frames_;
  base::IndexLinks links_;
  base::IndexList free_;    // newest first: its memory is warm
  base::IndexList cached_;  // oldest first
};

}  // namespace quire::kv
