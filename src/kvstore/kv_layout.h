// KvLayout: where every key and value of the cache lies. The only place that knows offsets and
// bytes of the KV arena; the planner, the allocator's owner and attention all ask here.
//
//   arena  = frames of frame_bytes() each, numbered from 0
//   frame  = one block (block_size tokens) of one layer group, as its layers' codecs store it:
//            [layer of the group][kv head][keys | values], pieces at multiples of 64 bytes. One KV
//            head's keys and values are adjacent, so attention reads a frame front to back.
//   tail   = the same block before it is sealed: for each layer and KV head one pair of f16 pieces
//            (keys [head_dim, block_size], values [block_size, head_dim]), dealt out to
//            tail_frames() frames, as many pairs to each as fit
//   sinks  = f16 pieces of a sequence's first tokens (keys [head_dim, kSinkBlock], values
//            [sink_tokens, head_dim]), dealt out likewise to sink_frames() frames of block 0
//   group  = layers that share a sliding window, hence a block table and a set of live blocks. All
//            groups have the same number of layer slots, so any free frame serves any group; a
//            group with fewer layers than slots, or with layers of smaller codecs, leaves the rest
//            of its frames unused.
//
// Immutable after Create; copying is cheap enough for set-up code.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kv_codec.h"
#include "kv/kv_cache.h"
#include "kvstore/kv_format.h"

namespace quire::kvstore {

// What a model asks of its cache.
struct KvGeometry {
  int kv_heads = 0;
  int head_dim = 0;
  std::vector<int> sliding_windows;  // [layers] tokens a query sees, itself included; 0: all
};

// Keys of sinks are stored as a block of so many tokens, of which the first are sinks.
inline constexpr int kSinkBlock = kMaxSinks;

struct LayerGroup {
  int window = 0;           // as in KvGeometry
  std::vector<int> layers;  // ascending
};

// A layer's place: slot `slot` of the frames of group `group`.
struct LayerPlace {
  int group = 0;
  int slot = 0;
};

// Where a pair of f16 pieces lies among the frames that hold a block's tail or sinks.
struct PairPlace {
  int frame = 0;
  size_t keys = 0;  // offsets in the frame
  size_t values = 0;
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

  KvCodecs codecs(int layer) const { return format_.codecs(layer); }
  // Tokens of a residual group; 0: everything is encoded as it is written, there is no tail.
  int residual_tokens() const { return residual_tokens_; }
  bool has_tail() const { return residual_tokens_ > 0; }
  int sink_tokens() const { return sink_tokens_; }

  size_t frame_bytes() const { return frame_bytes_; }
  // Of one KV head in one frame, padded.
  size_t key_bytes(int layer) const { return pieces_[layer].key_bytes; }
  size_t value_bytes(int layer) const { return pieces_[layer].value_bytes; }
  // Offsets from a frame's start.
  size_t key_offset(int layer, int kv_head) const {
    const LayerPieces& pieces = pieces_[layer];
    return pieces.offset + kv_head * (pieces.key_bytes + pieces.value_bytes);
  }
  size_t value_offset(int layer, int kv_head) const {
    return key_offset(layer, kv_head) + pieces_[layer].key_bytes;
  }

  // A pair of f16 pieces for a whole block: its bytes, and where the values begin.
  size_t full_pair_bytes() const { return full_key_bytes_ + full_value_bytes_; }
  size_t full_key_bytes() const { return full_key_bytes_; }
  int tail_frames() const { return has_tail() ? FramesForPairs(full_pair_bytes()) : 0; }
  PairPlace tail_place(int layer, int kv_head) const {
    return PlaceOfPair(layer, kv_head, full_key_bytes_, full_value_bytes_);
  }
  // Frames with sinks that block 0 has per layer group; 0: no sinks.
  int sink_frames() const {
    return sink_tokens_ == 0 ? 0 : FramesForPairs(sink_key_bytes_ + sink_value_bytes_);
  }
  PairPlace sink_place(int layer, int kv_head) const {
    return PlaceOfPair(layer, kv_head, sink_key_bytes_, sink_value_bytes_);
  }
  // Block tables of a sequence, as in the control plane: one per layer group, then the layer
  // groups' sinks: frame f of group g in table (1 + f) * group_count() + g.
  int table_count() const { return group_count() * (1 + sink_frames()); }
  int sink_table(int group, int frame) const { return (1 + frame) * group_count() + group; }

  // Bytes that one more token costs once its block is sealed: of one group, and of all of them (the
  // price of a token that every layer still sees). Scales and padding included.
  double bytes_per_token_of_group() const {
    return static_cast<double>(frame_bytes()) / block_size();
  }
  double bytes_per_token() const { return bytes_per_token_of_group() * group_count(); }

  // Frames that a sequence of `tokens` tokens holds, over all groups, tail and sinks included:
  // windowed groups keep only blocks that the next query can see.
  int64_t frames_for_tokens(int64_t tokens) const;

  // The frames that an arena of so many bytes is cut into. kExhausted, with sizes, if none.
  Result<int> FramesIn(size_t arena_bytes) const;

  // Tokens of the longest sequence that so many frames hold while it is computed in steps of
  // `step_tokens`, up to 2^24.
  int LongestSequence(int frames, int step_tokens) const;

  // The control plane of an arena of `frames` frames; what depends on requests is left as it is.
  kv::KvCacheOptions CacheOptions(int frames) const;

  // A few lines for people.
  std::string Describe() const;

 private:
  // A layer's pieces in a frame.
  struct LayerPieces {
    size_t offset = 0;  // of the first KV head's keys
    size_t key_bytes = 0;
    size_t value_bytes = 0;
  };

  KvLayout() = default;
  void CutIntoGroups();
  void SpreadBySize();
  void PlacePieces();
  int FramesForPairs(size_t pair_bytes) const;
  PairPlace PlaceOfPair(int layer, int kv_head, size_t key_bytes, size_t value_bytes) const;

  KvGeometry geometry_;
  KvFormat format_;
  std::vector<LayerGroup> groups_;
  std::vector<LayerPlace> places_;   // [layers]
  std::vector<LayerPieces> pieces_;  // [layers]
  int layer_slots_ = 0;
  int residual_tokens_ = 0;
  int sink_tokens_ = 0;
  size_t frame_bytes_ = 0;
  size_t full_key_bytes_ = 0;
  size_t full_value_bytes_ = 0;
  size_t sink_key_bytes_ = 0;
  size_t sink_value_bytes_ = 0;
};

}  // namespace quire::kvstore
