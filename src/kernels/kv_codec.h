// KvCodec: how a frame of the KV cache stores keys or values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::kernels {

enum class KvCodec : uint8_t { kF32, kF16, kBf16 };
inline constexpr int kKvCodecCount = 3;
inline constexpr KvCodec kAllKvCodecs[kKvCodecCount] = {KvCodec::kF32, KvCodec::kF16,
                                                        KvCodec::kBf16};

// As `--kv-cache-dtype` spells it.
constexpr std::string_view Name(KvCodec codec) {
  constexpr std::string_view kNames[kKvCodecCount] = {"f32", "f16", "bf16"};
  return kNames[static_cast<int>(codec)];
}

// nullopt: no such codec.
constexpr std::optional<KvCodec> KvCodecFromName(std::string_view name) {
  for (KvCodec codec : kAllKvCodecs) {
    if (Name(codec) == name) return codec;
  }
  return std::nullopt;
}

// Bytes in which a codec stores the keys (or values) of one KV head for one block of tokens,
// [head_dim][tokens] (or [tokens][head_dim]), whatever it keeps beside the numbers included.
constexpr size_t KvPieceBytes(KvCodec codec, int head_dim, int tokens) {
  size_t values = static_cast<size_t>(head_dim) * static_cast<size_t>(tokens);
  return values * (codec == KvCodec::kF32 ? 4 : 2);
}

}  // namespace quire::kernels
