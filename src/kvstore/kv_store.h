// KvStore: the bytes of the KV cache. Owns the arena and nothing else: which frame belongs to whom
// is decided by quire_kv, where things lie in a frame by KvLayout.
//
// Frames start with undefined content (zero until first used). Distinct frames may be written by
// distinct threads; whoever hands out frames makes sure that nobody writes what another reads.
#pragma once

#include <cstddef>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "kvstore/kv_layout.h"
#include "tensor/buffer.h"

namespace quire::kvstore {

class KvStore {
 public:
  // An arena of at most arena_bytes, cut into whole frames. Memory is reserved now and becomes
  // resident as frames are first used. kExhausted, with the bytes needed and available, when the
  // machine has less or not one frame fits.
  static Result<KvStore> Create(const KvLayout& layout, size_t arena_bytes);

  const KvLayout& layout() const { return layout_; }
  int frames_total() const { return frames_total_; }
  size_t arena_bytes() const { return arena_.bytes(); }

  std::byte* frame(FrameId id) { return arena_.data() + Offset(id); }
  const std::byte* frame(FrameId id) const { return arena_.data() + Offset(id); }

  // Copies tokens [0, tokens) of a frame of `group` to another one: copy on write, and reuse of a
  // prefix that ends inside a block. The other tokens of `to` are undefined afterwards.
  void CopyTokens(FrameId from, FrameId to, int tokens, int group);
  // Copies all of a frame: of a tail or of sinks.
  void CopyFrame(FrameId from, FrameId to);
  // What the control plane asks for, its groups being the layout's and then their sinks.
  void Execute(const kv::PendingCopy& copy);

 private:
  KvStore(KvLayout layout, Buffer arena, int frames)
      : layout_(std::move(layout)), arena_(std::move(arena)), frames_total_(frames) {}
  size_t Offset(FrameId id) const {
    QUIRE_DCHECK(id.value >= 0 && id.value < frames_total_);
    return static_cast<size_t>(id.value) * layout_.frame_bytes();
  }

  KvLayout layout_;
  Buffer arena_;
  int frames_total_ = 0;
};

}  // namespace quire::kvstore
