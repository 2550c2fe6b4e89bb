#include "kernels/kv_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/attention_math.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_pieces.h"

namespace quire::kernels {
namespace {

constexpr float kF16Max = 65504.0f;
constexpr uint16_t kF16MaxBits = 0x7bff;
constexpr int kMaxGroup = 128;  // numbers that share a scale, at most
constexpr int kFits = 4;        // more gain next to nothing

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

// Codes 0..max_code of value = min + scale * code, for a scale and minimum that are given.
void EncodeWith(const ScaleAndMin& fit, const Numbers& numbers, int max_code, int* codes) {
  const float min = F32FromF16(fit.min);
  const float inverse = Inverse(F32FromF16(fit.scale));
  for (int i = 0; i < numbers.count; ++i) {
    codes[i] = Code(Saturated(numbers.x[i]) - min, inverse, 0, max_code);
  }
}

// From the smallest number to the largest: no number is off by more than half a step.
ScaleAndMin EncodeAsymmetric(const Numbers& numbers, int max_code, int* codes) {
  const Range range = RangeOf(numbers);
  ScaleAndMin out;
  out.min = F16FromF32(range.low);
  const float span = std::max(range.high - F32FromF16(out.min), 0.0f);
  out.scale = F16NotBelow(span / static_cast<float>(max_code));
  EncodeWith(out, numbers, max_code, codes);
  return out;
}

float SquaredError(const ScaleAndMin& fit, const Numbers& numbers, const int* codes) {
  const float min = F32FromF16(fit.min);
  const float scale = F32FromF16(fit.scale);
  float sum = 0.0f;
  for (int i = 0; i < numbers.count; ++i) {
    const float error = numbers.x[i] - min - scale * static_cast<float>(codes[i]);
    sum += error * error;
  }
  return sum;
}

// The scale and minimum whose line through the codes is closest to the numbers (least squares);
// nullopt: the codes are all the same.
std::optional<ScaleAndMin> LineThrough(const Numbers& numbers, const int* codes) {
  int code_sum = 0;
  int code_squares = 0;
  float sum = 0.0f;
  float products = 0.0f;
  for (int i = 0; i < numbers.count; ++i) {
    const float x = numbers.x[i];
    code_sum += codes[i];
    code_squares += codes[i] * codes[i];
    sum += x;
    products += x * static_cast<float>(codes[i]);
  }
  const int spread = numbers.count * code_squares - code_sum * code_sum;
  if (spread == 0) return std::nullopt;
  const auto count = static_cast<float>(numbers.count);
  const float scale =
      (count * products - static_cast<float>(code_sum) * sum) / static_cast<float>(spread);
  const float min = (sum - scale * static_cast<float>(code_sum)) / count;
  return ScaleAndMin{F16FromF32(std::clamp(scale, 0.0f, kF16Max)), F16FromF32(Saturated(min))};
}

// As EncodeAsymmetric, then fitted: a line through the codes and codes along the line in turn, as
// long as the squared error falls. Numbers of a rotated row are close to normally distributed, so
// the outermost may lie beyond the last code if the many others come closer; numbers as a model
// makes them have outliers that matter, and keep EncodeAsymmetric.
ScaleAndMin EncodeFitted(const Numbers& numbers, int max_code, int* codes) {
  ScaleAndMin best = EncodeAsymmetric(numbers, max_code, codes);
  // A number beyond f16's range would draw the line away from all the others.
  if (!std::all_of(numbers.x, numbers.x + numbers.count, IsOrdinary)) return best;
  float least = SquaredError(best, numbers, codes);
  for (int fit = 0; fit < kFits; ++fit) {
    const std::optional<ScaleAndMin> line = LineThrough(numbers, codes);
    if (!line) break;
    int closer[kMaxGroup];
    EncodeWith(*line, numbers, max_code, closer);
    const float error = SquaredError(*line, numbers, closer);
    if (!(error < least)) break;
    least = error;
    best = *line;
    std::copy_n(closer, numbers.count, codes);
  }
  return best;
}

// ---- a token's row: int8, int4 and kivi's values

// Where a token's numbers go: the codes' lane and place in the summed dimension are its position
// and a channel, in either order.
enum class Kind { kKeys, kValues };

// How a group of 4 or 2 bits finds its scale and minimum.
enum class Fit { kRange, kLeastSquares };

template <int kBits, Kind kKind, Fit kFit>
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
    const ScaleAndMin scale = kFit == Fit::kRange
                                  ? EncodeAsymmetric(numbers, Words::kMaxCode, codes)
                                  : EncodeFitted(numbers, Words::kMaxCode, codes);
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

template <int kBits, Kind kKind, Fit kFit>
void EncodeRows(const EncodeTile& tile) {
  const TokenPiece<kBits, kKind, kFit> piece{tile.piece, tile.head_dim, tile.block_size};
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

template <int kBits, Kind kKind, Fit kFit>
void SealRows(const SealTile& tile) {
  const TokenPiece<kBits, kKind, kFit> piece{tile.piece, tile.head_dim, tile.block_size};
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
constexpr KvEncoders kRowEncoders = {EncodeRows<kBits, Kind::kKeys, Fit::kLeastSquares>,
                                     EncodeRows<kBits, Kind::kValues, Fit::kLeastSquares>,
                                     SealRows<kBits, Kind::kKeys, Fit::kLeastSquares>,
                                     SealRows<kBits, Kind::kValues, Fit::kLeastSquares>};

template <int kBits>
constexpr KvEncoders kKiviEncoders = {nullptr, nullptr, SealKiviKeys<kBits>,
                                      SealRows<kBits, Kind::kValues, Fit::kRange>};

template <typename Format>
constexpr KvEncoders kFp8Encoders = {nullptr, nullptr, SealFp8<Format, Kind::kKeys>,
                                     SealFp8<Format, Kind::kValues>};

}  // namespace

KvEncoders QuantizedEncoders(KvCodec codec) {
  switch (codec) {
    case KvCodec::kInt8:
      return kRowEncoders<8>;
    case KvCodec::kInt4:
      return kRowEncoders<4>;
    case KvCodec::kFp8E4M3:
      return kFp8Encoders<E4M3>;
    case KvCodec::kFp8E5M2:
      return kFp8Encoders<E5M2>;
    case KvCodec::kKivi4:
      return kKiviEncoders<4>;
    case KvCodec::kKivi2:
      return kKiviEncoders<2>;
    default:
      return {};
  }
}

}  // namespace quire::kernels
