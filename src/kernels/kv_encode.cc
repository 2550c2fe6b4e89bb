#include "kernels/kv_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention_math.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_pieces.h"

namespace quire::kernels {
namespace {

constexpr float kF16Max = 65504.0f;
constexpr uint16_t kF16MaxBits = 0x7bff;
constexpr int kMaxGroup = 128;  // numbers that share a scale, at most

bool IsOrdinary(float x) {
  return std::fabs(x) < kF16Max;
}

// NaN as 0, everything else within f16's range.
float Saturated(float x) {
  return x != x ? 0.0f : std::clamp(x, -kF16Max, kF16Max);
}

// The smallest f16 that is not below x >= 0: a scale that is rounded down would cut off the ends.
uint16_t F16NotBelow(float x) {
  uint16_t half = F16FromF32(std::min(x, kF16Max));
  if (F32FromF16(half) < x && half < kF16MaxBits) ++half;
  return half;
}

// The numbers that share a scale.
struct Numbers {
  float x[kMaxGroup];
  int count = 0;

  void Add(float value) { x[count++] = value; }
};

struct Range {
  float low = 0.0f;
  float high = 0.0f;
};

Range RangeOf(const Numbers& numbers) {
  Range range{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()};
  auto include = [&](float x) {
    range.low = std::min(range.low, x);
    range.high = std::max(range.high, x);
  };
  for (int i = 0; i < numbers.count; ++i) {
    if (IsOrdinary(numbers.x[i])) include(numbers.x[i]);
  }
  if (range.low > range.high) {  // nothing to save
    for (int i = 0; i < numbers.count; ++i) include(Saturated(numbers.x[i]));
  }
  return range;
}

int Code(float x, float inverse, int low, int high) {
  const float code = std::clamp(x * inverse, static_cast<float>(low), static_cast<float>(high));
  return static_cast<int>((code + kRoundMagic) - kRoundMagic);
}

float Inverse(float scale) {
  return scale > 0.0f ? 1.0f / scale : 0.0f;
}

// Codes -127..127; returns the scale.
uint16_t EncodeSymmetric(const Numbers& numbers, int* codes) {
  const Range range = RangeOf(numbers);
  const uint16_t scale = F16NotBelow(std::max(-range.low, range.high) / 127.0f);
  const float inverse = Inverse(F32FromF16(scale));
  for (int i = 0; i < numbers.count; ++i) {
    codes[i] = Code(Saturated(numbers.x[i]), inverse, -127, 127);
  }
  return scale;
}

struct ScaleAndMin {
  uint16_t scale = 0;
  uint16_t min = 0;
};

// Codes 0..max_code of value = min + scale * code.
ScaleAndMin EncodeAsymmetric(const Numbers& numbers, int max_code, int* codes) {
  const Range range = RangeOf(numbers);
  ScaleAndMin out;
  out.min = F16FromF32(range.low);
  const float min = F32FromF16(out.min);
  out.scale = F16NotBelow(std::max(range.high - min, 0.0f) / static_cast<float>(max_code));
  const float inverse = Inverse(F32FromF16(out.scale));
  for (int i = 0; i < numbers.count; ++i) {
    codes[i] = Code(Saturated(numbers.x[i]) - min, inverse, 0, max_code);
  }
  return out;
}

// ---- a token's row: int8, int4 and kivi's values

// Where a token's numbers go: the codes' lane and place in the summed dimension are its position
// and a channel, in either order.
enum class Kind { kKeys, kValues };

template <int kBits, Kind kKind>
struct TokenPiece {
  using Words = CodeWords<kBits>;
  std::byte* piece;
  int head_dim;
  int block_size;

  void SetCode(int token, int channel, int code) const {
    const int along = kKind == Kind::kKeys ? channel : token;
    const int lane = kKind == Kind::kKeys ? token : channel;
    const int lanes = kKind == Kind::kKeys ? block_size : head_dim;
    Words::Set(piece, Words::Index(along, lane, lanes), Words::Shift(along), code);
  }
  size_t code_bytes() const {
    return kKind == Kind::kKeys ? KeyCodeBytes<kBits>(head_dim, block_size)
                                : ValueCodeBytes<kBits>(head_dim, block_size);
  }

  void StoreInt8Group(const Numbers& numbers, int token, int group) const {
    int codes[kMaxGroup];
    const uint16_t scale = EncodeSymmetric(numbers, codes);
    auto scales = GroupScales(piece, code_bytes(), Int8Groups(head_dim), block_size);
    scales.scale[group * block_size + token] = scale;
    for (int i = 0; i < numbers.count; ++i) SetCode(token, group * kInt8Group + i, codes[i]);
  }
  void StoreGroup(const Numbers& numbers, int token, int group) const {
    int codes[kMaxGroup];
    const ScaleAndMin scale = EncodeAsymmetric(numbers, Words::kMaxCode, codes);
    auto scales = GroupScales(piece, code_bytes(), KvGroups(head_dim), block_size);
    scales.scale[group * block_size + token] = scale.scale;
    scales.min[group * block_size + token] = scale.min;
    for (int i = 0; i < numbers.count; ++i) SetCode(token, group * kKvGroup + i, codes[i]);
  }

  // `at(channel)` is the row's number; channels beyond the head are stored as 0.
  template <typename At>
  void StoreRow(int token, At at) const {
    for (int begin = 0, group = 0; begin < head_dim; ++group) {
      int end = std::min(begin + kInt8Group, head_dim);
      if (kBits != 8) end = group + 1 < KvGroups(head_dim) ? begin + kKvGroup : head_dim;
      Numbers numbers;
      for (int c = begin; c < end; ++c) numbers.Add(at(c));
      if (kBits == 8) {
        StoreInt8Group(numbers, token, group);
      } else {
        StoreGroup(numbers, token, group);
      }
      begin = end;
    }
    if (kKind == Kind::kValues) return;
    for (int c = head_dim; c < PaddedChannels(head_dim); ++c) SetCode(token, c, 0);
  }
};

template <int kBits, Kind kKind>
void EncodeRows(const EncodeTile& tile) {
  const TokenPiece<kBits, kKind> piece{tile.piece, tile.head_dim, tile.block_size};
  for (int i = 0; i < tile.count; ++i) {
    const float* row = tile.rows + i * tile.row_stride;
    piece.StoreRow(tile.first + i, [&](int c) { return row[c]; });
  }
}

float KeyAt(const SealTile& tile, int token, int channel) {
  return F32FromF16(
      reinterpret_cast<const uint16_t*>(tile.from)[channel * tile.block_size + token]);
}
float ValueAt(const SealTile& tile, int token, int channel) {
  return F32FromF16(reinterpret_cast<const uint16_t*>(tile.from)[token * tile.head_dim + channel]);
}

template <int kBits, Kind kKind>
void SealRows(const SealTile& tile) {
  const TokenPiece<kBits, kKind> piece{tile.piece, tile.head_dim, tile.block_size};
  for (int t = 0; t < tile.block_size; ++t) {
    piece.StoreRow(t, [&](int c) {
      if (t < tile.skip) return 0.0f;
      return kKind == Kind::kKeys ? KeyAt(tile, t, c) : ValueAt(tile, t, c);
    });
  }
}

// ---- kivi's keys

template <int kBits>
void SealKiviKeys(const SealTile& tile) {
  using Words = CodeWords<kBits>;
  const int n = tile.block_size;
  const size_t code_bytes = KeyCodeBytes<kBits>(tile.head_dim, n);
  std::memset(tile.piece, 0, code_bytes);
  for (int begin = 0; begin < n; begin += kKvGroup) {
    const int first = std::max(begin, std::min(tile.skip, n));
    const int end = std::min(begin + kKvGroup, n);
    const int group = begin / kKvGroup;
    auto scales = GroupScales(tile.piece, code_bytes, KiviTokenGroups(n), tile.head_dim);
    for (int c = 0; c < tile.head_dim; ++c) {
      Numbers numbers;
      for (int t = first; t < end; ++t) numbers.Add(KeyAt(tile, t, c));
      ScaleAndMin scale;
      int codes[kMaxGroup];
      if (numbers.count > 0) scale = EncodeAsymmetric(numbers, Words::kMaxCode, codes);
      scales.scale[group * tile.head_dim + c] = scale.scale;
      scales.min[group * tile.head_dim + c] = scale.min;
      for (int i = 0; i < numbers.count; ++i) {
        Words::Set(tile.piece, Words::Index(c, first + i, n), Words::Shift(c), codes[i]);
      }
    }
  }
}

// ---- fp8

template <typename Format, Kind kKind>
void SealFp8(const SealTile& tile) {
  const int d = tile.head_dim;
  const int n = tile.block_size;
  constexpr bool kIsKeys = kKind == Kind::kKeys;
  auto at = [&](int t, int c) { return kIsKeys ? KeyAt(tile, t, c) : ValueAt(tile, t, c); };
  float ordinary = 0.0f;
  float largest = 0.0f;
  for (int t = tile.skip; t < n; ++t) {
    for (int c = 0; c < d; ++c) {
      const float x = at(t, c);
      largest = std::max(largest, std::fabs(Saturated(x)));
      if (IsOrdinary(x)) ordinary = std::max(ordinary, std::fabs(x));
    }
  }
  if (ordinary > 0.0f) largest = ordinary;
  const float scale = largest / Format::kMax;
  const float inverse = largest > 0.0f ? Format::kMax / largest : 0.0f;
  const size_t code_bytes = kIsKeys ? Fp8KeyCodeBytes(d, n) : Fp8ValueCodeBytes(d, n);
  std::memset(tile.piece, 0, code_bytes);
  for (int t = tile.skip; t < n; ++t) {
    for (int c = 0; c < d; ++c) {
      const size_t index = kIsKeys ? Fp8Index(c, t, n) : Fp8Index(t, c, d);
      tile.piece[index] = std::byte{F8FromF32<Format>(Saturated(at(t, c)) * inverse)};
    }
  }
  std::memcpy(tile.piece + code_bytes, &scale, sizeof(scale));
}

template <int kBits>
constexpr KvEncoders kRowEncoders = {EncodeRows<kBits, Kind::kKeys>,
                                     EncodeRows<kBits, Kind::kValues>, SealRows<kBits, Kind::kKeys>,
                                     SealRows<kBits, Kind::kValues>};

}  // namespace

KvEncoders QuantizedEncoders(KvCodec codec) {
  switch (codec) {
    case KvCodec::kInt8:
      return kRowEncoders<8>;
    case KvCodec::kInt4:
      return kRowEncoders<4>;
    case KvCodec::kFp8E4M3:
      return {nullptr, nullptr, SealFp8<E4M3, Kind::kKeys>, SealFp8<E4M3, Kind::kValues>};
    case KvCodec::kFp8E5M2:
      return {nullptr, nullptr, SealFp8<E5M2, Kind::kKeys>, SealFp8<E5M2, Kind::kValues>};
    case KvCodec::kKivi4:
      return {nullptr, nullptr, SealKiviKeys<4>, SealRows<4, Kind::kValues>};
    case KvCodec::kKivi2:
      return {nullptr, nullptr, SealKiviKeys<2>, SealRows<2, Kind::kValues>};
    default:
      return {};
  }
}

}  // namespace quire::kernels
