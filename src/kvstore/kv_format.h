// KvFormat: how an operator wants keys and values stored, and what follows from it: which layers
// and planes use which codec, whether the newest tokens stay in f16 for a while, which tokens do
// for good.
//
// Precision (docs/NUMERICS.md): positions form residual groups of ResidualTokens(), aligned at 0. A
// query sees keys and values of its own group in f16, and those of earlier groups sealed, that is
// as the codec stores them. Without residual groups everything is encoded as it is written, and a
// query sees all of it encoded, its own token included. Sinks, the first SinkTokens() of a
// sequence, are seen in f16 always, by planes of fewer than 8 bits.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kv_codec.h"

namespace quire::kvstore {

struct KvCodecs {
  kernels::KvCodec keys = kernels::KvCodec::kF16;
  kernels::KvCodec values = kernels::KvCodec::kF16;
  friend bool operator==(const KvCodecs&, const KvCodecs&) = default;
};

struct LayerCodecs {
  int layer = 0;
  KvCodecs codecs;
};

// Which planes of codecs that rotate (kernels::Rotates) are rotated before they are stored.
enum class KvRotation : uint8_t { kNone, kKeys, kValues, kBoth };

struct KvFormat {
  // Of every layer that `layers` does not name.
  kernels::KvCodec key_codec = kernels::KvCodec::kF16;
  kernels::KvCodec value_codec = kernels::KvCodec::kF16;
  int block_size = 32;                   // 16, 32 or 64 tokens
  std::vector<LayerCodecs> layers = {};  // each layer once

  // As the operator asked; nullopt: what suits the codecs.
  std::optional<int> residual_tokens = std::nullopt;
  std::optional<int> sink_tokens = std::nullopt;
  KvRotation rotation = KvRotation::kBoth;

  const LayerCodecs* FindLayer(int layer) const {
    const auto found = std::ranges::find(layers, layer, &LayerCodecs::layer);
    return found == layers.end() ? nullptr : &*found;
  }
  KvCodecs codecs(int layer) const {
    const LayerCodecs* own = FindLayer(layer);
    return own == nullptr ? KvCodecs{key_codec, value_codec} : own->codecs;
  }
  bool rotates_keys(int layer) const {
    return (rotation == KvRotation::kKeys || rotation == KvRotation::kBoth) &&
           kernels::Rotates(codecs(layer).keys);
  }
  bool rotates_values(int layer) const {
    return (rotation == KvRotation::kValues || rotation == KvRotation::kBoth) &&
           kernels::Rotates(codecs(layer).values);
  }
};

inline constexpr int kDefaultKiviResidual = 128;  // as in the paper (2402.02750)
inline constexpr int kDefaultSinks = 4;
inline constexpr int kMaxSinks = 16;

// Whether a codec keeps sinks apart.
constexpr bool KeepsSinks(kernels::KvCodec codec) {
  return kernels::CodeBits(codec) < 8;
}

// "int8", "k=int8,v=int4", with how many layers differ.
std::string Name(const KvFormat& format);

// kUsage, with the combination and what works, for a format that no layout of `layers` layers can
// follow.
Status ValidateFormat(const KvFormat& format, int layers);

// Tokens of a residual group: a multiple of the block size. 0: no tail.
int ResidualTokens(const KvFormat& format, int layers);

// Tokens kept as sinks by the planes that keep some.
int SinkTokens(const KvFormat& format, int layers);

}  // namespace quire::kvstore
