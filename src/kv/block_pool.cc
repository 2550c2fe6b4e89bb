#include "kv/block_pool.h"

#include "base/check.h"

namespace quire::kv {

BlockPool::BlockPool(int frames) : frames_(frames), links_(frames) {
  for (int32_t i = frames - 1; i >= 0; --i) free_.PushFront(links_, i);
}

FrameId BlockPool::Allocate(int group) {
  QUIRE_CHECK(!free_.empty());
  const FrameId frame{free_.front()};
  free_.Remove(links_, frame.value);
  At(frame) = {
      .references = 1, .pins = 0, .group = group, .state = FrameState::kLeased, .block = {}};
  return frame;
}

void BlockPool::MakeLeased(FrameId frame) {
  Frame& f = At(frame);
  QUIRE_CHECK(f.state != FrameState::kFree);
  if (f.state == FrameState::kCached) cached_.Remove(links_, frame.value);
  f.state = FrameState::kLeased;
}

void BlockPool::AddReference(FrameId frame) {
  MakeLeased(frame);
  ++At(frame).references;
}

void BlockPool::Pin(FrameId frame) {
  MakeLeased(frame);
  ++At(frame).pins;
}

void BlockPool::DropReference(FrameId frame) {
  QUIRE_CHECK_GT(At(frame).references, 0);
  --At(frame).references;
  LetGo(frame, std::nullopt);
}

void BlockPool::Unpin(FrameId frame, std::optional<FrameId> successor) {
  QUIRE_CHECK_GT(At(frame).pins, 0);
  --At(frame).pins;
  LetGo(frame, successor);
}

void BlockPool::LetGo(FrameId frame, std::optional<FrameId> successor) {
  Frame& f = At(frame);
  if (f.references > 0 || f.pins > 0) return;
  if (!f.block) {
    f.state = FrameState::kFree;
    free_.PushFront(links_, frame.value);
    return;
  }
  f.state = FrameState::kCached;
  if (successor && At(*successor).state == FrameState::kCached) {
    cached_.InsertBefore(links_, successor->value, frame.value);
  } else {
    cached_.PushBack(links_, frame.value);
  }
}

std::optional<FrameId> BlockPool::OldestCached() const {
  if (cached_.empty()) return std::nullopt;
  return FrameId{cached_.front()};
}

std::optional<FrameId> BlockPool::NextCached(FrameId frame) const {
  const int32_t next = base::IndexList::Next(links_, frame.value);
  if (next == base::kNoIndex) return std::nullopt;
  return FrameId{next};
}

void BlockPool::Evict(FrameId frame) {
  Frame& f = At(frame);
  QUIRE_CHECK(f.state == FrameState::kCached);
  cached_.Remove(links_, frame.value);
  f.block.reset();
  f.state = FrameState::kFree;
  free_.PushFront(links_, frame.value);
}

void BlockPool::CheckInvariants() const {
  int counts[3] = {0, 0, 0};
  for (const Frame& f : frames_) {
    ++counts[static_cast<int>(f.state)];
    QUIRE_CHECK_EQ(f.state == FrameState::kLeased, f.references > 0 || f.pins > 0);
    if (f.state == FrameState::kCached) QUIRE_CHECK(f.block.has_value());
    if (f.state == FrameState::kFree) QUIRE_CHECK(!f.block.has_value());
  }
  int listed = 0;
  for (int32_t i = free_.front(); i != base::kNoIndex; i = base::IndexList::Next(links_, i)) {
    QUIRE_CHECK(frames_[i].state == FrameState::kFree);
    ++listed;
  }
  QUIRE_CHECK_EQ(listed, counts[static_cast<int>(FrameState::kFree)]);
  QUIRE_CHECK_EQ(listed, frames_free());
  listed = 0;
  for (int32_t i = cached_.front(); i != base::kNoIndex; i = base::IndexList::Next(links_, i)) {
    QUIRE_CHECK(frames_[i].state == FrameState::kCached);
    ++listed;
  }
  QUIRE_CHECK_EQ(listed, counts[static_cast<int>(FrameState::kCached)]);
  QUIRE_CHECK_EQ(listed, frames_cached());
  QUIRE_CHECK_EQ(frames_leased(), counts[static_cast<int>(FrameState::kLeased)]);
}

}  // namespace quire::kv
