// Where things lie in a piece of integer codes, and in a query prepared for one. For kernels only.
//
// A piece is [codes | scales | minima]. Kernels multiply 16-bit pairs: two neighbours along the
// dimension that is summed over (channels of keys, tokens of values) lie in one 32-bit lane, and
// lanes run along the other dimension. So the summed dimension is cut into chunks of 16, in which
// number i pairs with number i + 8 (no shuffles are needed to put sixteen numbers into pairs), and
// the pairs are stored in words of one lane each:
//
//   int8    u16 words  [chunk, pair 0..7,    lanes]  byte 0: i, byte 1: i + 8
//   4 bits  u32 words  [chunk, pair/4 0..1,  lanes]  nibble k: i = 4 * word + k, nibble 4 + k: i +
//   8 2 bits  u32 words  [chunk,               lanes]  2 bits  k: i = k,           field 8 + k: i +
//   8
//
//   fp8     u32 words  [chunk of four,       lanes]  byte k: number k of the chunk (not in pairs)
//
// so that (word >> bits * k) & mask are the pairs, ready to multiply. Scales and minima are f16:
//   per token   [group of channels, tokens]   int8, int4, kivi's values
//   per channel [group of 32 tokens, head_dim] kivi's keys
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/kv_codec.h"

namespace quire::kernels {

inline constexpr int kChunk = 16;          // numbers of the summed dimension
inline constexpr int kPairs = kChunk / 2;  // of a chunk
inline constexpr int kValueSpan = 32;      // tokens whose weights are made integers together

// Limits of arrays on the stack: kvstore refuses larger heads.
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxKvGroups = kMaxHeadDim / kKvGroup;

template <int kBits>
struct CodeWords {
  using Word = std::conditional_t<kBits == 8, uint16_t, uint32_t>;
  static constexpr int kHalfBits = 4 * sizeof(Word);
  static constexpr int kPerHalf = kHalfBits / kBits;   // pairs of a word
  static constexpr int kPerChunk = kPairs / kPerHalf;  // words of a chunk and lane
  static constexpr int kMaxCode = (1 << kBits) - 1;    // of unsigned codes

  static constexpr size_t Index(int along, int lane, int lanes) {
    const int word = along / kChunk * kPerChunk + along % kPairs / kPerHalf;
    return static_cast<size_t>(word) * static_cast<size_t>(lanes) + static_cast<size_t>(lane);
  }
  static constexpr int Shift(int along) {
    return along % kChunk / kPairs * kHalfBits + along % kPairs % kPerHalf * kBits;
  }
  static void Set(std::byte* piece, size_t index, int shift, int code) {
    auto* word = reinterpret_cast<Word*>(piece) + index;
    const uint32_t mask = static_cast<uint32_t>(kMaxCode) << shift;
    *word = static_cast<Word>((*word & ~mask) | (static_cast<uint32_t>(code) << shift & mask));
  }
  // int8 codes are signed, the others are not.
  static int Get(const std::byte* piece, size_t index, int shift) {
    const uint32_t code =
        (uint32_t{reinterpret_cast<const Word*>(piece)[index]} >> shift) & kMaxCode;
    return kBits == 8 ? static_cast<int8_t>(code) : static_cast<int>(code);
  }
};

// 2-bit values of every second pair of tokens are multiplied where they lie, without a shift: four
// times too large. The integers they meet are a quarter instead, which leaves 14 bits: enough for
// weights, too little for queries whose channels differ widely.
template <Plane kPlane, int kBits>
constexpr bool IsMultipliedInPlace(int along) {
  return kPlane == Plane::kValues && kBits == 2 && along % 2 == 1;
}
template <Plane kPlane, int kBits>
constexpr float IntegerFactor(int along) {
  return IsMultipliedInPlace<kPlane, kBits>(along) ? 0.25f : 1.0f;
}

// A piece's scales and minima (null where the codec has none), as f16.
template <typename Half>
struct Scales {
  Half* scale;
  Half* min;
};
template <typename Byte>
using HalfOf = std::conditional_t<std::is_const_v<Byte>, const uint16_t, uint16_t>;

// [groups, lanes] scales, then as many minima (beyond the piece for int8, which has none).
template <typename Byte>
Scales<HalfOf<Byte>> GroupScales(Byte* piece, size_t code_bytes, int groups, int lanes) {
  auto* scale = reinterpret_cast<HalfOf<Byte>*>(piece + code_bytes);
  return {scale, scale + static_cast<size_t>(groups) * static_cast<size_t>(lanes)};
}

// Where an 8-bit float lies.
constexpr size_t Fp8Index(int along, int lane, int lanes) {
  return (static_cast<size_t>(along / 4) * static_cast<size_t>(lanes) + static_cast<size_t>(lane)) *
             4 +
         static_cast<size_t>(along % 4);
}
constexpr size_t Fp8KeyCodeBytes(int head_dim, int tokens) {
  return static_cast<size_t>(PaddedFp8Channels(head_dim)) * static_cast<size_t>(tokens);
}
constexpr size_t Fp8ValueCodeBytes(int head_dim, int tokens) {
  return static_cast<size_t>(head_dim) * static_cast<size_t>(tokens);
}
inline float Fp8Scale(const std::byte* piece, size_t code_bytes) {
  float scale;
  std::memcpy(&scale, piece + code_bytes, sizeof(scale));
  return scale;
}

template <int kBits>
constexpr size_t KeyCodeBytes(int head_dim, int tokens) {
  return static_cast<size_t>(PaddedChannels(head_dim)) * static_cast<size_t>(tokens) * kBits / 8;
}
template <int kBits>
constexpr size_t ValueCodeBytes(int head_dim, int tokens) {
  return static_cast<size_t>(head_dim) * static_cast<size_t>(tokens) * kBits / 8;
}

// A row tile's queries as 16-bit integers for int8 and int4 keys:
//   pairs [chunk, rows, pair] of (channel i, channel i + 8); zero beyond head_dim
//   scale [rows]              query = scale * integer
//   sums  [groups, rows]      of a group's integers, as f32
struct IntegerQueries {
  int16_t* pairs;
  float* scale;
  float* sums;
};
inline IntegerQueries IntegerQueriesAt(std::byte* prepared, int head_dim, int rows) {
  const size_t integers = static_cast<size_t>(PaddedChannels(head_dim)) * static_cast<size_t>(rows);
  auto* scale = reinterpret_cast<float*>(prepared + integers * sizeof(int16_t));
  return {reinterpret_cast<int16_t*>(prepared), scale, scale + rows};
}

// Queries and weights are made integers of this magnitude at most; below kTiny all are 0.
inline constexpr float kLargestInteger = 32767.0f;
inline constexpr float kTiny = 1e-30f;

}  // namespace quire::kernels
