// Attention on quantized keys and values in plain loops: the definition that the others must equal
// bit for bit. Sums of integers are exact; everything in f32 below has a stated order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/attention_math.h"
#include "kernels/attention_tables.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_encode.h"
#include "kernels/kv_pieces.h"

namespace quire::kernels {
namespace {

// ---- fp8: sums in f32 as for f16. Codes are read as floats 2^kExponentGap too small; half of that
// is made good in the query (which leaves the sums within range), half with the piece's scale. For
// values all of it is in the scale, which the weights take.

template <typename Format>
constexpr float kHalfGap = static_cast<float>(uint64_t{1} << Format::kExponentGap / 2);

// [rows, head_dim] to [head_dim, rows], zeros up to whole words of channels.
template <typename Format>
void PrepareFp8(const QueryTile& tile) {
  auto* packed = reinterpret_cast<float*>(tile.prepared);
  for (int c = 0; c < PaddedFp8Channels(tile.head_dim); ++c) {
    for (int r = 0; r < tile.rows; ++r) {
      const float q = c < tile.head_dim ? tile.q[r * tile.head_dim + c] : 0.0f;
      packed[c * tile.rows + r] = q * kHalfGap<Format>;
    }
  }
}

template <typename Format>
void Fp8Scores(const ScoreTile& tile) {
  const int n = tile.block_size;
  const auto* q = reinterpret_cast<const float*>(tile.q);
  const auto* codes = reinterpret_cast<const uint8_t*>(tile.keys);
  const float scale = Fp8Scale(tile.keys, Fp8KeyCodeBytes(tile.head_dim, n)) * kHalfGap<Format>;
  for (int r = 0; r < tile.rows; ++r) {
    for (int t = tile.begin; t < tile.end; ++t) {
      float sum = 0.0f;
      for (int c = 0; c < PaddedFp8Channels(tile.head_dim); ++c) {
        const float key = SmallF32FromF8<Format>(codes[Fp8Index(c, t, n)]);
        sum = std::fma(q[c * tile.rows + r], key, sum);
      }
      tile.scores[r * kSpan + t] = sum * scale;
    }
  }
}

// Tokens are taken in whole words; those outside [begin, end) weigh 0.
template <typename Format>
void Fp8AddValues(const ValueTile& tile) {
  const int d = tile.head_dim;
  const auto* codes = reinterpret_cast<const uint8_t*>(tile.values);
  const float scale = Fp8Scale(tile.values, Fp8ValueCodeBytes(d, tile.block_size)) *
                      kHalfGap<Format> * kHalfGap<Format>;
  for (int t = tile.begin / 4 * 4; t < (tile.end + 3) / 4 * 4; ++t) {
    const bool inside = t >= tile.begin && t < tile.end;
    for (int r = 0; r < tile.rows; ++r) {
      const float weight = inside ? tile.weights[r * kSpan + t] * scale : 0.0f;
      float* out = tile.out + r * d;
      for (int c = 0; c < d; ++c) {
        const float value = SmallF32FromF8<Format>(codes[Fp8Index(t, c, d)]);
        out[c] = std::fma(weight, value, out[c]);
      }
    }
  }
}

// ---- integers of queries and weights

struct IntegerScale {
  float scale = 0.0f;    // number = scale * integer
  float inverse = 0.0f;  // integer = round(number * inverse)
};

IntegerScale ScaleFor(float largest) {
  if (!(largest >= kTiny)) return {};
  return {largest / kLargestInteger, kLargestInteger / largest};
}

// To nearest even; NaN becomes 0.
int16_t ToInteger(float x, float inverse) {
  const float rounded = (x * inverse + kRoundMagic) - kRoundMagic;
  return rounded == rounded ? static_cast<int16_t>(rounded) : int16_t{0};
}

// A code of a value as it is multiplied.
template <int kBits>
int CodeInPlace(const std::byte* piece, size_t index, int along) {
  using Words = CodeWords<kBits>;
  const int code = Words::Get(piece, index, Words::Shift(along));
  return IsMultipliedInPlace<Plane::kValues, kBits>(along) ? 4 * code : code;
}

// The sum of x * min in kChunk partial sums (number i goes to sum i mod kChunk), then halves added.
float Bias(const float* x, const uint16_t* min, int count) {
  float sums[kChunk] = {};
  for (int i = 0; i < count; ++i) {
    sums[i % kChunk] = std::fma(x[i], F32FromF16(min[i]), sums[i % kChunk]);
  }
  for (int half = kChunk / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// ---- keys with scales per token: int8 and int4

// One scale per row: 16 bits leave room for channels that stand out. A NaN makes the whole row NaN.
template <bool kHasMin>
void PrepareIntegers(const QueryTile& tile) {
  const IntegerQueries out = IntegerQueriesAt(tile.prepared, tile.head_dim, tile.rows);
  std::memset(tile.prepared, 0,
              sizeof(int16_t) * static_cast<size_t>(PaddedChannels(tile.head_dim) * tile.rows));
  for (int r = 0; r < tile.rows; ++r) {
    const float* q = tile.q + r * tile.head_dim;
    float largest = 0.0f;
    bool is_nan = false;
    for (int c = 0; c < tile.head_dim; ++c) {
      largest = std::fabs(q[c]) > largest ? std::fabs(q[c]) : largest;
      is_nan = is_nan || q[c] != q[c];
    }
    const IntegerScale scale = ScaleFor(largest);
    out.scale[r] = is_nan ? std::nanf("") : scale.scale;
    int sums[kMaxKvGroups] = {};
    for (int c = 0; c < tile.head_dim; ++c) {
      const int16_t integer = ToInteger(q[c], scale.inverse);
      const int chunk = c / kChunk * tile.rows + r;
      out.pairs[(chunk * kPairs + c % kPairs) * 2 + c % kChunk / kPairs] = integer;
      sums[KvGroupOf(c, tile.head_dim)] += integer;
    }
    if (!kHasMin) continue;
    for (int g = 0; g < KvGroups(tile.head_dim); ++g) {
      out.sums[g * tile.rows + r] = static_cast<float>(sums[g]);
    }
  }
}

int QueryInteger(const IntegerQueries& queries, int rows, int row, int channel) {
  const int chunk = channel / kChunk * rows + row;
  return queries.pairs[(chunk * kPairs + channel % kPairs) * 2 + channel % kChunk / kPairs];
}

// score = query scale * (for each group in order: + dot * scale, + sum of integers * min)
template <int kBits>
void TokenScores(const ScoreTile& tile) {
  using Words = CodeWords<kBits>;
  const int n = tile.block_size;
  const int groups = kBits == 8 ? Int8Groups(tile.head_dim) : KvGroups(tile.head_dim);
  const auto queries = IntegerQueriesAt(const_cast<std::byte*>(tile.q), tile.head_dim, tile.rows);
  const auto scales = GroupScales(tile.keys, KeyCodeBytes<kBits>(tile.head_dim, n), groups, n);
  for (int r = 0; r < tile.rows; ++r) {
    for (int t = tile.begin; t < tile.end; ++t) {
      float score = 0.0f;
      for (int g = 0, c = 0; g < groups; ++g) {
        int end = g + 1 == groups ? tile.head_dim : c + (kBits == 8 ? kInt8Group : kKvGroup);
        int dot = 0;
        for (; c < end; ++c) {
          dot += QueryInteger(queries, tile.rows, r, c) *
                 Words::Get(tile.keys, Words::Index(c, t, n), Words::Shift(c));
        }
        score = std::fma(static_cast<float>(dot), F32FromF16(scales.scale[g * n + t]), score);
        if (kBits == 8) continue;
        score = std::fma(queries.sums[g * tile.rows + r], F32FromF16(scales.min[g * n + t]), score);
      }
      tile.scores[r * kSpan + t] = score * queries.scale[r];
    }
  }
}

// ---- keys with scales per channel: kivi. The scales are folded into the query per 32 tokens.

void PrepareRows(const QueryTile& tile) {
  std::memcpy(tile.prepared, tile.q,
              sizeof(float) * static_cast<size_t>(tile.rows * tile.head_dim));
}

template <int kBits>
void ChannelScores(const ScoreTile& tile) {
  using Words = CodeWords<kBits>;
  const int n = tile.block_size;
  const int d = tile.head_dim;
  const auto scales = GroupScales(tile.keys, KeyCodeBytes<kBits>(d, n), KiviTokenGroups(n), d);
  for (int r = 0; r < tile.rows; ++r) {
    const float* q = reinterpret_cast<const float*>(tile.q) + r * d;
    for (int first = tile.begin / kKvGroup * kKvGroup; first < tile.end; first += kKvGroup) {
      const int channels = first / kKvGroup * d;
      const float bias = Bias(q, scales.min + channels, d);
      float products[kMaxHeadDim];
      float largest = 0.0f;
      for (int c = 0; c < d; ++c) {
        products[c] = q[c] * F32FromF16(scales.scale[channels + c]);
        largest = std::fabs(products[c]) > largest ? std::fabs(products[c]) : largest;
      }
      const IntegerScale scale = ScaleFor(largest);
      const int end = std::min(first + kKvGroup, tile.end);
      for (int t = std::max(first, tile.begin); t < end; ++t) {
        int dot = 0;
        for (int c = 0; c < d; ++c) {
          dot += ToInteger(products[c], scale.inverse) *
                 Words::Get(tile.keys, Words::Index(c, t, n), Words::Shift(c));
        }
        tile.scores[r * kSpan + t] = std::fma(static_cast<float>(dot), scale.scale, bias);
      }
    }
  }
}

// ---- values: weight * scale as integers per kValueSpan tokens, one scale for all groups

// Tokens [begin, end) of the value span at `first`; the others may hold anything.
template <int kBits>
void AddSpanRow(const ValueTile& tile, int r, int first, int begin, int end) {
  using Words = CodeWords<kBits>;
  const int n = tile.block_size;
  const int d = tile.head_dim;
  const int groups = kBits == 8 ? Int8Groups(d) : KvGroups(d);
  const auto scales = GroupScales(tile.values, ValueCodeBytes<kBits>(d, n), groups, n);
  float weights[kValueSpan] = {};
  for (int t = begin; t < end; ++t) weights[t - first] = tile.weights[r * kSpan + t];
  float bias[kMaxKvGroups] = {};
  float largest = 0.0f;
  for (int g = 0; g < groups; ++g) {
    uint16_t min[kValueSpan] = {};
    for (int t = begin; t < end; ++t) {
      if (kBits != 8) min[t - first] = scales.min[g * n + t];
      const float product = weights[t - first] * F32FromF16(scales.scale[g * n + t]);
      largest = product > largest ? product : largest;
    }
    bias[g] = Bias(weights, min, kValueSpan);
  }
  const IntegerScale scale = ScaleFor(largest);
  for (int c = 0; c < d; ++c) {
    const int g = kBits == 8 ? c / kInt8Group : KvGroupOf(c, d);
    int dot = 0;
    for (int t = begin; t < end; ++t) {
      const float weight =
          weights[t - first] * (scale.inverse * IntegerFactor<Plane::kValues, kBits>(t));
      dot += ToInteger(weight, F32FromF16(scales.scale[g * n + t])) *
             CodeInPlace<kBits>(tile.values, Words::Index(t, c, d), t);
    }
    float& out = tile.out[r * d + c];
    if (kBits != 8) out += bias[g];
    out = std::fma(static_cast<float>(dot), scale.scale, out);
  }
}

// out = (out + bias) + dot * scale, fused
template <int kBits>
void AddCodes(const ValueTile& tile) {
  for (int first = tile.begin / kValueSpan * kValueSpan; first < tile.end; first += kValueSpan) {
    const int begin = std::max(first, tile.begin);
    const int end = std::min(first + kValueSpan, tile.end);
    for (int r = 0; r < tile.rows; ++r) AddSpanRow<kBits>(tile, r, first, begin, end);
  }
}

struct Readers {
  void (*prepare)(const QueryTile&);
  void (*scores)(const ScoreTile&);
  void (*add_values)(const ValueTile&);
};

Readers ReadersOf(KvCodec codec) {
  switch (codec) {
    case KvCodec::kFp8E4M3:
      return {PrepareFp8<E4M3>, Fp8Scores<E4M3>, Fp8AddValues<E4M3>};
    case KvCodec::kFp8E5M2:
      return {PrepareFp8<E5M2>, Fp8Scores<E5M2>, Fp8AddValues<E5M2>};
    case KvCodec::kInt8:
      return {PrepareIntegers<false>, TokenScores<8>, AddCodes<8>};
    case KvCodec::kInt4:
      return {PrepareIntegers<true>, TokenScores<4>, AddCodes<4>};
    case KvCodec::kKivi4:
      return {PrepareRows, ChannelScores<4>, AddCodes<4>};
    default:
      return {PrepareRows, ChannelScores<2>, AddCodes<2>};
  }
}

}  // namespace

const KvCodecKernels& ScalarQuantizedKernels(KvCodec codec) {
  static const std::vector<KvCodecKernels> all = [] {
    std::vector<KvCodecKernels> kernels;
    for (KvCodec kind : kAllKvCodecs) {
      const Readers readers = ReadersOf(kind);
      const KvEncoders encoders = QuantizedEncoders(kind);
      kernels.push_back({readers.prepare, readers.scores, readers.add_values, encoders.encode_keys,
                         encoders.encode_values, encoders.seal_keys, encoders.seal_values});
    }
    return kernels;
  }();
  return all[static_cast<size_t>(codec)];
}

}  // namespace quire::kernels
