// ColdSequence: for benchmarks, one long sequence whose frames lie scattered over an arena that
// nothing was computed into, so that a step at its end costs what it would after the real prompt.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/rng.h"
#include "kvstore/attention_plan.h"
#include "kvstore/kv_store.h"

namespace quire::kvstore {

class ColdSequence {
 public:
  // `rows` positions are about to be computed after `context` others. The first of them begins a
  // residual group where the format has such: all before it is sealed.
  ColdSequence(const KvLayout& layout, int context, int rows)
      : layout_(layout),
        context_(context),
        rows_(rows),
        body_((context + rows + layout.block_size() - 1) / layout.block_size()),
        tail_(layout.has_tail() ? (rows + layout.block_size() - 1) / layout.block_size() : 0),
        frames_(body_ + tail_ * layout.tail_frames() + layout.sink_frames()),
        store_(std::move(KvStore::Create(layout, frames_.size() * layout.frame_bytes())).value()) {
    std::memset(store_.frame({0}), 0x2c, store_.arena_bytes());  // small numbers in every codec
    for (size_t i = 0; i < frames_.size(); ++i) frames_[i] = {static_cast<int32_t>(i)};
    base::CounterRng rng(1, 2, 3);
    for (size_t i = frames_.size() - 1; i > 0; --i) {
      std::swap(frames_[i], frames_[rng.NextBelow(i + 1)]);
    }
    MakeTables();
  }
  ColdSequence(const ColdSequence&) = delete;
  ColdSequence& operator=(const ColdSequence&) = delete;

  KvStore& store() { return store_; }
  SequenceRun run() const { return {0, rows_, context_, tables_}; }

 private:
  void MakeTables() {
    const std::span<const FrameId> all(frames_);
    tables_.push_back({0, all.first(body_)});
    for (int i = 0; i < tail_; ++i) tail_blocks_.push_back(context_ / layout_.block_size() + i);
    tables_.front().tail = {tail_blocks_, all.subspan(body_, tail_ * layout_.tail_frames())};
    for (int i = 0; i < layout_.sink_frames(); ++i) {
      tables_.push_back({0, all.last(layout_.sink_frames()).subspan(i, 1)});
    }
  }

  const KvLayout layout_;
  int context_;
  int rows_;
  int body_;  // frames of sealed blocks
  int tail_;  // blocks of the tail
  std::vector<FrameId> frames_;
  KvStore store_;
  std::vector<int> tail_blocks_;
  std::vector<BlockTable> tables_;
};

}  // namespace quire::kvstore
