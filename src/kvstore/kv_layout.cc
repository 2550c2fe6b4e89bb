#include "kvstore/kv_layout.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

constexpr size_t kPieceAlignment = 64;
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
// More groups mean more block tables per sequence; beyond this a little padding is the lesser evil.
constexpr int kMaxGroups = 16;

size_t AlignUp(size_t bytes) {
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

int CeilDiv(int a, int b) {
  return (a + b - 1) / b;
}

// Layer slots per frame such that all windows' layers, `counts` of them each, are cut into groups
// of that many: the fewest unused slots among the cuts with a bearable number of groups, then the
// fewest groups.
int ChooseLayerSlots(const std::vector<int>& counts) {
  int largest = *std::max_element(counts.begin(), counts.end());
  int best = largest;
  int best_padding = -1;
  int max_groups = std::max<int>(kMaxGroups, static_cast<int>(counts.size()));
  for (int slots = largest; slots >= 1; --slots) {
    int groups = 0;
    int padding = 0;
    for (int count : counts) {
      groups += CeilDiv(count, slots);
      padding += CeilDiv(count, slots) * slots - count;
    }
    if (groups > max_groups) break;
    if (best_padding < 0 || padding < best_padding) {
      best = slots;
      best_padding = padding;
    }
  }
  return best;
}

Status Validate(const KvGeometry& geometry) {
  int layers = static_cast<int>(geometry.sliding_windows.size());
  if (layers < 1 || layers > kMaxLayers || geometry.kv_heads < 1 || geometry.kv_heads > kMaxHeads ||
      geometry.head_dim < 1 || geometry.head_dim > kMaxHeadDim) {
    return MakeError(
        ErrorKind::kUnsupported,
        "a KV cache of {} layers, {} KV heads and head size {} is not possible: at most "
        "{}, {} and {}, none of them 0",
        layers, geometry.kv_heads, geometry.head_dim, kMaxLayers, kMaxHeads, kMaxHeadDim);
  }
  for (int window : geometry.sliding_windows) {
    if (window < 0) {
      return MakeError(ErrorKind::kUnsupported, "a sliding window of {} tokens is not possible",
                       window);
    }
  }
  return Ok{};
}

}  // namespace

Result<KvLayout> KvLayout::Create(KvGeometry geometry, KvFormat format) {
  QUIRE_RETURN_IF_ERROR(Validate(geometry));
  const int layers = static_cast<int>(geometry.sliding_windows.size());
  QUIRE_RETURN_IF_ERROR(ValidateFormat(format, layers));
  KvLayout layout;
  layout.residual_tokens_ = ResidualTokens(format, layers);
  layout.sink_tokens_ = SinkTokens(format, layers);
  layout.geometry_ = std::move(geometry);
  layout.format_ = std::move(format);
  const int block_size = layout.block_size();
  const int head_dim = layout.head_dim();
  for (int layer = 0; layer < layers; ++layer) {
    const KvCodecs codecs = layout.codecs(layer);
    layout.pieces_.push_back(
        {.offset = 0,
         .key_bytes = AlignUp(kernels::KeyPieceBytes(codecs.keys, head_dim, block_size)),
         .value_bytes = AlignUp(kernels::ValuePieceBytes(codecs.values, head_dim, block_size))});
  }
  layout.full_key_bytes_ = AlignUp(kernels::KeyPieceBytes(KvCodec::kF16, head_dim, block_size));
  layout.full_value_bytes_ = AlignUp(kernels::ValuePieceBytes(KvCodec::kF16, head_dim, block_size));
  layout.sink_key_bytes_ = AlignUp(kernels::KeyPieceBytes(KvCodec::kF16, head_dim, kSinkBlock));
  layout.sink_value_bytes_ =
      AlignUp(kernels::ValuePieceBytes(KvCodec::kF16, head_dim, layout.sink_tokens_));
  layout.CutIntoGroups();
  layout.SpreadBySize();
  layout.PlacePieces();
  return layout;
}

void KvLayout::CutIntoGroups() {
  const std::vector<int>& windows = geometry_.sliding_windows;
  std::map<int, std::vector<int>> layers_by_window;
  for (int layer = 0; layer < static_cast<int>(windows.size()); ++layer) {
    layers_by_window[windows[layer]].push_back(layer);
  }
  std::vector<int> counts;
  for (const auto& [window, layers] : layers_by_window) {
    counts.push_back(static_cast<int>(layers.size()));
  }
  layer_slots_ = ChooseLayerSlots(counts);
  places_.resize(windows.size());
  for (const auto& [window, layers] : layers_by_window) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i % layer_slots_ == 0) groups_.push_back({window, {}});
      places_[layers[i]] = {group_count() - 1, static_cast<int>(i % layer_slots_)};
      groups_.back().layers.push_back(layers[i]);
    }
  }
}

// Layers of a window whose codecs differ in size are spread over its groups so that the groups come
// out about equal: the largest frame decides for all.
void KvLayout::SpreadBySize() {
  const auto bytes = [&](int layer) {
    return pieces_[layer].key_bytes + pieces_[layer].value_bytes;
  };
  for (int first = 0; first < group_count();) {
    int end = first;
    std::vector<int> layers;
    for (; end < group_count() && groups_[end].window == groups_[first].window; ++end) {
      layers.insert(layers.end(), groups_[end].layers.begin(), groups_[end].layers.end());
    }
    const auto [least, most] = std::ranges::minmax(layers, {}, bytes);
    if (end - first > 1 && bytes(least) != bytes(most)) {
      std::ranges::stable_sort(layers, std::greater(), bytes);
      std::vector<size_t> filled(group_count(), 0);
      for (int group = first; group < end; ++group) groups_[group].layers.clear();
      for (int layer : layers) {
        std::optional<int> emptiest;
        for (int group = first; group < end; ++group) {
          if (static_cast<int>(groups_[group].layers.size()) == layer_slots_) continue;
          if (!emptiest || filled[group] < filled[*emptiest]) emptiest = group;
        }
        filled[*emptiest] += bytes(layer);
        groups_[*emptiest].layers.push_back(layer);
      }
    }
    first = end;
  }
}

void KvLayout::PlacePieces() {
  for (int group = 0; group < group_count(); ++group) {
    std::ranges::sort(groups_[group].layers);
    size_t offset = 0;
    for (size_t slot = 0; slot < groups_[group].layers.size(); ++slot) {
      const int layer = groups_[group].layers[slot];
      places_[layer] = {group, static_cast<int>(slot)};
      pieces_[layer].offset = offset;
      offset += kv_heads() * (pieces_[layer].key_bytes + pieces_[layer].value_bytes);
    }
    frame_bytes_ = std::max(frame_bytes_, offset);
  }
  // Toy models: a frame holds at least one pair of everything.
  if (has_tail()) frame_bytes_ = std::max(frame_bytes_, full_pair_bytes());
  if (sink_tokens_ > 0) frame_bytes_ = std::max(frame_bytes_, sink_key_bytes_ + sink_value_bytes_);
}

int KvLayout::FramesForPairs(size_t pair_bytes) const {
  const int pairs = layer_slots_ * kv_heads();
  return CeilDiv(pairs, static_cast<int>(frame_bytes_ / pair_bytes));
}

PairPlace KvLayout::PlaceOfPair(int layer, int kv_head, size_t key_bytes,
                                size_t value_bytes) const {
  const int pair = places_[layer].slot * kv_heads() + kv_head;
  const int per_frame = static_cast<int>(frame_bytes_ / (key_bytes + value_bytes));
  const size_t offset = (pair % per_frame) * (key_bytes + value_bytes);
  return {pair / per_frame, offset, offset + key_bytes};
}

int64_t KvLayout::frames_for_tokens(int64_t tokens) const {
  const int64_t group_blocks = std::max(residual_tokens_, block_size()) / block_size();
  const int64_t blocks = (tokens + block_size() - 1) / block_size();
  const int64_t sealed =
      has_tail() ? tokens / (group_blocks * block_size()) * group_blocks : blocks;
  int64_t frames = 0;
  for (const LayerGroup& group : groups_) {
    const int64_t first =
        group.window == 0 || tokens < group.window ? 0 : (tokens - group.window) / block_size();
    frames += std::max<int64_t>(0, sealed - first);
    frames += (blocks - std::max(sealed, std::min(first, blocks))) * tail_frames();
    if (first == 0 && sealed > 0) frames += sink_frames();
  }
  return frames;
}

Result<int> KvLayout::FramesIn(size_t arena_bytes) const {
  const size_t frames = arena_bytes / frame_bytes();
  if (frames == 0) {
    return MakeError(ErrorKind::kExhausted,
                     "a KV cache of {} bytes holds no frame: this model needs at least {} bytes "
                     "({} tokens) in each of {} layer groups; raise --kv-cache-memory",
                     arena_bytes, frame_bytes(), block_size(), group_count());
  }
  return static_cast<int>(std::min<size_t>(frames, std::numeric_limits<int32_t>::max()));
}

int KvLayout::LongestSequence(int frames, int step_tokens) const {
  kv::KvCacheOptions options = CacheOptions(frames);
  options.max_lease_tokens = 1 << 24;
  return kv::KvCache::MaxSequenceTokens(options, step_tokens);
}

kv::KvCacheOptions KvLayout::CacheOptions(int frames) const {
  kv::KvCacheOptions options;
  options.frames = frames;
  options.block_tokens = block_size();
  options.groups.clear();
  options.residual_tokens = residual_tokens_;
  const auto window = [](const LayerGroup& group) {
    return group.window == 0 ? std::nullopt : std::optional(group.window);
  };
  for (const LayerGroup& group : groups_) {
    options.groups.push_back({.window_tokens = window(group),
                              .tail_frames = tail_frames(),
                              .blocks = kv::GroupBlocks::kAll});
  }
  for (int frame = 0; frame < sink_frames(); ++frame) {
    for (const LayerGroup& group : groups_) {
      options.groups.push_back(
          {.window_tokens = window(group), .tail_frames = 0, .blocks = kv::GroupBlocks::kFirst});
    }
  }
  options.frame_bytes = static_cast<int64_t>(frame_bytes());
  return options;
}

std::string KvLayout::Describe() const {
  std::string text = fmt::format(
      "keys {}, values {}, blocks of {} tokens, {} layers x {} KV heads x {}\n"
      "{:.0f} bytes per token, {} bytes per frame\n",
      Name(format_.key_codec), Name(format_.value_codec), block_size(), layers(), kv_heads(),
      head_dim(), bytes_per_token(), frame_bytes());
  for (const auto& [layer, codecs] : format_.layers) {
    text += fmt::format("layer {}: keys {}, values {}\n", layer, Name(codecs.keys),
                        Name(codecs.values));
  }
  if (has_tail()) {
    text += fmt::format(
        "groups of {} tokens stay in f16 until they are complete ({} frames per "
        "block)\n",
        residual_tokens_, tail_frames());
  }
  if (sink_tokens_ > 0) text += fmt::format("the first {} tokens stay in f16\n", sink_tokens_);
  for (const LayerGroup& group : groups_) {
    text += group.window == 0 ? std::string("full attention")
                              : fmt::format("window of {} tokens", group.window);
    text += fmt::format(": {} layers, {:.0f} bytes per token", group.layers.size(),
                        bytes_per_token_of_group());
    int unused = layer_slots_ - static_cast<int>(group.layers.size());
    if (unused > 0) text += fmt::format(" ({} of {} layer slots unused)", unused, layer_slots_);
    text += "\n";
  }
  return text;
}

}  // namespace quire::kvstore
