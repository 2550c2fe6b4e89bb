// KvLayout: where every key and value of the cache lies. The only place that knows offsets and
// bytes of the KV arena; the planner, the allocator's owner and attention all ask here.
//
//   arena  = frames of frame_bytes() each, numbered from 0
//   frame  = one block (block_size tokens) of one layer group:
//            [layer of the group][kv head][keys [head_dim, block_size] | values [block_size,
//            head_dim]] Pieces start at multiples of 64 bytes. One KV head's keys and values are
//            adjacent, so attention reads a frame front to back.
//   group  = layers that share a sliding window, hence a block table and a set of live blocks. All
//            groups have the same number of layer slots, so any free frame serves any group; a
//            group with fewer layers than slots leaves the rest of its frames unused
//            (padding_layers()).
//
// Immutable after Create; copying is cheap enough for set-up code.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kv_codec.h"
#include "kv/kv_cache.h"

namespace quire::kvstore {

// What a model asks of its cache.
struct KvGeometry {
  int kv_heads = 0;
  int head_dim = 0;
  std::vector<int> sliding_windows;  // [layers] tokens a query sees, itself included; 0: all
};

// How the operator wants it stored.
struct KvFormat {
  kernels::KvCodec key_codec = kernels::KvCodec::kF16;
  kernels::KvCodec value_codec = kernels::KvCodec::kF16;
  int block_size = 32;  // 16, 32 or 64 tokens
};

struct LayerGroup {
  int window = 0;           // as in KvGeometry
  std::vector<int> layers;  // ascending
};

// A layer's place: slot `slot` of the frames of group `group`.
struct LayerPlace {
  int group = 0;
  int slot = 0;
};

class KvLayout {
 public:
  // kUsage or kUnsupported for a geometry or format that cannot be laid out.
  static Result<KvLayout> Create(KvGeometry geometry, KvFormat format);

  const KvGeometry& geometry() const { return geometry_; }
  const KvFormat& format() const { return format_; }
  int layers() const { return static_cast<int>(places_.size()); }
  int kv_heads() const { return geometry_.kv_heads; }
  int head_dim() const { return geometry_.head_dim; }
  int block_size() const { return format_.block_size; }

  const std::vector<LayerGroup>& groups() const { return groups_; }
  int group_count() const { return static_cast<int>(groups_.size()); }
  int layer_slots() const { return layer_slots_; }  // of every frame
  int padding_layers() const { return group_count() * layer_slots_ - layers(); }
  LayerPlace place(int layer) const { return places_[layer]; }
  int group_of(int layer) const { return places_[layer].group; }
  int window(int group) const { return groups_[group].window; }

  size_t frame_bytes() const { return layer_slots_ * layer_bytes_; }
  size_t layer_bytes() const { return layer_bytes_; }
  size_t key_bytes() const { return key_bytes_; }      // of one KV head in one frame, padded
  size_t value_bytes() const { return value_bytes_; }  // likewise

  // Offsets from a frame's start.
  size_t key_offset(int slot, int kv_head) const {
    return slot * layer_bytes_ + kv_head * (key_bytes_ + value_bytes_);
  }
  size_t value_offset(int slot, int kv_head) const {
    return key_offset(slot, kv_head) + key_bytes_;
  }

  // Bytes that one more token costs while its blocks are full: of one group, and of all of them
  // (the price of a token that every layer still sees). Padding included.
  double bytes_per_token_of_group() const {
    return static_cast<double>(frame_bytes()) / block_size();
  }
  double bytes_per_token() const { return bytes_per_token_of_group() * group_count(); }

  // Frames that a sequence of `tokens` tokens holds at most, over all groups: windowed groups keep
  // only blocks that the next query can see.
  int64_t frames_for_tokens(int64_t tokens) const;

  // The frames that an arena of so many bytes is cut into. kExhausted, with sizes, if none.
  Result<int> FramesIn(size_t arena_bytes) const;

  // The control plane of an arena of `frames` frames; what depends on requests is left as it is.
  kv::KvCacheOptions CacheOptions(int frames) const;

  // A few lines for people.
  std::string Describe() const;

 private:
  KvLayout() = default;
  void CutIntoGroups();

  KvGeometry geometry_;
  KvFormat format_;
  std::vector<LayerGroup> groups_;
  std::vector<LayerPlace> places_;  // [layers]
  int layer_slots_ = 0;
  size_t key_bytes_ = 0;
  size_t value_bytes_ = 0;
  size_t layer_bytes_ = 0;
};

}  // namespace quire::kvstore
