#include "kvstore/kv_layout.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace quire::kvstore {
namespace {

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

Status Validate(const KvGeometry& geometry, const KvFormat& format) {
  if (format.block_size != 16 && format.block_size != 32 && format.block_size != 64) {
    return MakeError(ErrorKind::kUsage, "a block of {} tokens is not possible: use 16, 32 or 64",
                     format.block_size);
  }
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
  QUIRE_RETURN_IF_ERROR(Validate(geometry, format));
  KvLayout layout;
  layout.geometry_ = std::move(geometry);
  layout.format_ = format;
  layout.CutIntoGroups();
  layout.key_bytes_ =
      AlignUp(kernels::KeyPieceBytes(format.key_codec, layout.head_dim(), format.block_size));
  layout.value_bytes_ =
      AlignUp(kernels::ValuePieceBytes(format.value_codec, layout.head_dim(), format.block_size));
  layout.layer_bytes_ =
      static_cast<size_t>(layout.kv_heads()) * (layout.key_bytes_ + layout.value_bytes_);
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

int64_t KvLayout::frames_for_tokens(int64_t tokens) const {
  int64_t frames = 0;
  for (const LayerGroup& group : groups_) {
    int64_t last = (tokens + block_size() - 1) / block_size();
    int64_t first =
        group.window == 0 || tokens < group.window ? 0 : (tokens - group.window) / block_size();
    frames += last - first;
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

kv::KvCacheOptions KvLayout::CacheOptions(int frames) const {
  kv::KvCacheOptions options;
  options.frames = frames;
  options.block_tokens = block_size();
  options.groups.clear();
  for (const LayerGroup& group : groups_) {
    options.groups.push_back({group.window == 0 ? std::nullopt : std::optional(group.window)});
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
