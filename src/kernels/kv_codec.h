// KvCodec: how a frame of the KV cache stores keys or values, and how many bytes that takes.
//
// A *piece* is what one KV head stores of one block's keys (or values). Where a number lies within
// a piece is kv_pieces.h's business; everybody else needs sizes only.
//
//   f32 f16 bf16      as they are
//   fp8_e4m3, _e5m2   8-bit floats with one scale per piece
//   int8              per token (and 128 channels) one scale; symmetric
//   int4              per token and 32 channels a scale and a minimum, on Hadamard-rotated rows
//   kivi4, kivi2      keys: per channel and 32 tokens a scale and a minimum; values: per token and
//                     32 channels (KIVI, 2402.02750)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::kernels {

enum class KvCodec : uint8_t {
  kF32,
  kF16,
  kBf16,
  kFp8E4M3,
  kFp8E5M2,
  kInt8,
  kInt4,
  kKivi4,
  kKivi2
};
inline constexpr int kKvCodecCount = 9;
inline constexpr KvCodec kAllKvCodecs[kKvCodecCount] = {
    KvCodec::kF32,  KvCodec::kF16,  KvCodec::kBf16,  KvCodec::kFp8E4M3, KvCodec::kFp8E5M2,
    KvCodec::kInt8, KvCodec::kInt4, KvCodec::kKivi4, KvCodec::kKivi2};
// Those that store every number by itself.
inline constexpr KvCodec kPlainKvCodecs[] = {KvCodec::kF32, KvCodec::kF16, KvCodec::kBf16};

// As `--kv-cache-dtype` spells it.
constexpr std::string_view Name(KvCodec codec) {
  constexpr std::string_view kNames[kKvCodecCount] = {
      "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "kivi4", "kivi2"};
  return kNames[static_cast<int>(codec)];
}

// nullopt: no such codec.
constexpr std::optional<KvCodec> KvCodecFromName(std::string_view name) {
  for (KvCodec codec : kAllKvCodecs) {
    if (Name(codec) == name) return codec;
  }
  return std::nullopt;
}

enum class Plane : uint8_t { kKeys, kValues };

// Encodes whole blocks at once from their f16 pieces, never a single row.
constexpr bool IsSealed(KvCodec codec) {
  return codec == KvCodec::kFp8E4M3 || codec == KvCodec::kFp8E5M2 || codec == KvCodec::kKivi4 ||
         codec == KvCodec::kKivi2;
}

// Has a seal function: everything that does not store every number by itself.
constexpr bool IsQuantized(KvCodec codec) {
  return codec >= KvCodec::kFp8E4M3;
}

// Rows are multiplied by a Hadamard matrix (AttentionKernels::rotate) before they are stored,
// queries before they meet keys, and outputs after values were summed.
constexpr bool Rotates(KvCodec codec) {
  return codec == KvCodec::kInt4;
}

// Bits of one number without scales.
constexpr int CodeBits(KvCodec codec) {
  constexpr int kBits[kKvCodecCount] = {32, 16, 16, 8, 8, 8, 4, 4, 2};
  return kBits[static_cast<int>(codec)];
}

// The fewest tokens a block must have: kivi's keys share a scale over this many.
constexpr int MinBlockSize(KvCodec codec) {
  return codec == KvCodec::kKivi4 || codec == KvCodec::kKivi2 ? 32 : 16;
}

// Channels (or tokens) that share a scale and a minimum in 4 and 2 bits, and a scale in int8. The
// last group of 32 takes what is left of a head: 80 channels are groups of 32 and 48.
inline constexpr int kKvGroup = 32;
inline constexpr int kInt8Group = 128;
constexpr int KvGroups(int head_dim) {
  return std::max(head_dim / kKvGroup, 1);
}
constexpr int KvGroupOf(int channel, int head_dim) {
  return std::min(channel / kKvGroup, KvGroups(head_dim) - 1);
}
constexpr int Int8Groups(int head_dim) {
  return (head_dim + kInt8Group - 1) / kInt8Group;
}
constexpr int KiviTokenGroups(int tokens) {
  return (tokens + kKvGroup - 1) / kKvGroup;
}

// Channels of a piece of integer keys: they are stored sixteen at a time. Of 8-bit floats: four.
constexpr int PaddedChannels(int head_dim) {
  return (head_dim + 15) / 16 * 16;
}
constexpr int PaddedFp8Channels(int head_dim) {
  return (head_dim + 3) / 4 * 4;
}

namespace detail {

// `tokens` rows of `head_dim` numbers, and what is kept per token beside them.
constexpr size_t TokenScaleBytes(KvCodec codec, size_t head_dim, size_t tokens) {
  const int channels = static_cast<int>(head_dim);
  if (codec == KvCodec::kFp8E4M3 || codec == KvCodec::kFp8E5M2) return sizeof(float);
  if (codec == KvCodec::kInt8) return 2 * static_cast<size_t>(Int8Groups(channels)) * tokens;
  if (IsQuantized(codec)) return 2 * 2 * static_cast<size_t>(KvGroups(channels)) * tokens;
  return 0;
}

}  // namespace detail

// Bytes of a piece of keys, [head_dim, tokens] encoded, scales included; `tokens` is a block size.
constexpr size_t KeyPieceBytes(KvCodec codec, int head_dim, int tokens) {
  const size_t d = static_cast<size_t>(head_dim);
  const size_t n = static_cast<size_t>(tokens);
  const bool fp8 = codec == KvCodec::kFp8E4M3 || codec == KvCodec::kFp8E5M2;
  const int padded = fp8 ? PaddedFp8Channels(head_dim) : PaddedChannels(head_dim);
  const size_t channels = IsQuantized(codec) ? static_cast<size_t>(padded) : d;
  const size_t codes = channels * n * static_cast<size_t>(CodeBits(codec)) / 8;
  if (codec == KvCodec::kKivi4 || codec == KvCodec::kKivi2) {
    return codes + 2 * 2 * d * static_cast<size_t>(KiviTokenGroups(tokens));
  }
  return codes + detail::TokenScaleBytes(codec, d, n);
}

// Bytes of a piece of values, [tokens, head_dim] encoded, scales included.
constexpr size_t ValuePieceBytes(KvCodec codec, int head_dim, int tokens) {
  const size_t d = static_cast<size_t>(head_dim);
  const size_t n = static_cast<size_t>(tokens);
  return d * n * static_cast<size_t>(CodeBits(codec)) / 8 + detail::TokenScaleBytes(codec, d, n);
}

// Bits that a number of a block takes on average, scales included, keys and values alike.
constexpr double BitsPerValue(KvCodec codec, int head_dim, int tokens) {
  const size_t bytes =
      KeyPieceBytes(codec, head_dim, tokens) + ValuePieceBytes(codec, head_dim, tokens);
  return 8.0 * static_cast<double>(bytes) / (2.0 * head_dim * tokens);
}

// Bytes that KvCodecKernels::prepare may write per query row: what a score kernel wants instead of
// the plain query. A multiple of 4.
constexpr size_t PreparedQueryBytes(int head_dim) {
  return static_cast<size_t>(PaddedChannels(head_dim)) * sizeof(float) +
         sizeof(float) * static_cast<size_t>(1 + KvGroups(head_dim));
}

}  // namespace quire::kernels
