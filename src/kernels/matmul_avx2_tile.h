// AVX2 tile kernels: 16 rows of weights times up to kT tokens, one chunk of columns at a time.
// Included by matmul_avx2.cc alone, inside its target region.
#pragma once

#ifndef QUIRE_MATMUL_NAMESPACE
#error "only matmul_avx2.cc includes this header"
#endif

namespace quire::kernels::QUIRE_MATMUL_NAMESPACE {

inline constexpr int kTileTokens = 4;
inline constexpr int kFloatTileTokens = 6;

inline __m256i BroadcastGroup(const int8_t* codes) {
  int32_t four = 0;
  std::memcpy(&four, codes, 4);
  return _mm256_set1_epi32(four);
}

// Keeps the compiler from turning a chain of integer additions into a tree, which needs more
// registers than there are.
inline void KeepOrder(__m256i& a, __m256i& b) {
  asm("" : "+x"(a), "+x"(b));
}

// Integer sums of both halves of the rows.
struct IntLanes {
  __m256i low;
  __m256i high;
};

// y += (scale * activation scale) * isum, for both halves of the rows.
inline void AddScaled(float* y, IntLanes isum, FloatLanes scales, float x_scale) {
  const __m256 xs = _mm256_set1_ps(x_scale);
  FloatLanes sum = LoadFloats(y);
  sum.low = _mm256_fmadd_ps(_mm256_mul_ps(scales.low, xs), _mm256_cvtepi32_ps(isum.low), sum.low);
  sum.high =
      _mm256_fmadd_ps(_mm256_mul_ps(scales.high, xs), _mm256_cvtepi32_ps(isum.high), sum.high);
  StoreFloats(y, sum);
}

// As above with isum - offset * xsum in place of isum; all three are exact in f32.
template <int kOffset>
inline void AddOffset(float* y, IntLanes isum, FloatLanes scales, float x_scale, float x_sum) {
  const __m256 xs = _mm256_set1_ps(x_scale);
  const __m256 shift = _mm256_set1_ps(x_sum * static_cast<float>(kOffset));
  FloatLanes sum = LoadFloats(y);
  const __m256 dot_low = _mm256_sub_ps(_mm256_cvtepi32_ps(isum.low), shift);
  const __m256 dot_high = _mm256_sub_ps(_mm256_cvtepi32_ps(isum.high), shift);
  sum.low = _mm256_fmadd_ps(_mm256_mul_ps(scales.low, xs), dot_low, sum.low);
  sum.high = _mm256_fmadd_ps(_mm256_mul_ps(scales.high, xs), dot_high, sum.high);
  StoreFloats(y, sum);
}

inline void AddMin(float* y, FloatLanes mins, float x_scale, float x_sum) {
  const __m256 weight = _mm256_set1_ps(x_scale * x_sum);
  FloatLanes sum = LoadFloats(y);
  sum.low = _mm256_fmadd_ps(mins.low, weight, sum.low);
  sum.high = _mm256_fmadd_ps(mins.high, weight, sum.high);
  StoreFloats(y, sum);
}

// Signed codes, for one tile. vpmaddubsw wants one unsigned side: |w| * (x with the sign of w). A
// pair of products is at most 2 * 128 * 127 = 32512, so nothing saturates.
template <DType kType, int kT>
inline void MultiplySignedOnce(const CodeSource& w, const Tile& tile) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t b = 0; b < tile.blocks; ++b) {
    __m256i low[kT];
    __m256i high[kT];
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const std::byte* group = w.codes + b * w.codes_stride + g * kGroupBytes;
      const Lanes codes = kType == DType::kQ8_0 ? LoadPacked(group) : LoadLanes(group);
      const __m256i abs_low = _mm256_abs_epi8(codes.low);
      const __m256i abs_high = _mm256_abs_epi8(codes.high);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const __m256i x = BroadcastGroup(tile.x[t * tile.x_stride + b].codes + 4 * g);
        const __m256i a = _mm256_maddubs_epi16(abs_low, _mm256_sign_epi8(x, codes.low));
        const __m256i c = _mm256_maddubs_epi16(abs_high, _mm256_sign_epi8(x, codes.high));
        const __m256i sum_low = _mm256_madd_epi16(a, ones);
        const __m256i sum_high = _mm256_madd_epi16(c, ones);
        low[t] = g == 0 ? sum_low : _mm256_add_epi32(low[t], sum_low);
        high[t] = g == 0 ? sum_high : _mm256_add_epi32(high[t], sum_high);
        KeepOrder(low[t], high[t]);
      }
    }
    const FloatLanes scales = LoadFloats(w.scales + b * kPanelRows);
#pragma GCC unroll 8
    for (int t = 0; t < kT; ++t) {
      AddScaled(tile.y + t * kPanelRows, {low[t], high[t]}, scales,
                tile.x[t * tile.x_stride + b].scale);
    }
  }
}

// Signed codes, for many tiles. Flipping the sign of x costs as much as the multiplication; instead
// |w| * (w < 0 ? ~x : x) differs from w * x by |w| wherever w is negative, and the sum of those is
// known per row and block (`negatives`). A pair of products is never below -2 * 128 * 128 = -32768
// nor above 32512, so nothing saturates.
template <int kT>
inline void MultiplySigned(const CodeSource& w, const Tile& tile) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t b = 0; b < tile.blocks; ++b) {
    tile.ahead.Fetch(b);
    const Lanes negatives = LoadLanes(w.negatives + b * kPanelRows);
    __m256i low[kT];
    __m256i high[kT];
#pragma GCC unroll 8
    for (int t = 0; t < kT; ++t) {
      low[t] = negatives.low;
      high[t] = negatives.high;
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const Lanes codes = LoadLanes(w.codes + b * w.codes_stride + g * kGroupBytes);
      const __m256i abs_low = _mm256_abs_epi8(codes.low);
      const __m256i abs_high = _mm256_abs_epi8(codes.high);
      const __m256i flip_low = _mm256_cmpgt_epi8(zero, codes.low);
      const __m256i flip_high = _mm256_cmpgt_epi8(zero, codes.high);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const __m256i x = BroadcastGroup(tile.x[t * tile.x_stride + b].codes + 4 * g);
        const __m256i a = _mm256_maddubs_epi16(abs_low, _mm256_xor_si256(x, flip_low));
        const __m256i c = _mm256_maddubs_epi16(abs_high, _mm256_xor_si256(x, flip_high));
        low[t] = _mm256_add_epi32(low[t], _mm256_madd_epi16(a, ones));
        high[t] = _mm256_add_epi32(high[t], _mm256_madd_epi16(c, ones));
        KeepOrder(low[t], high[t]);
      }
    }
    const FloatLanes scales = LoadFloats(w.scales + b * kPanelRows);
#pragma GCC unroll 8
    for (int t = 0; t < kT; ++t) {
      AddScaled(tile.y + t * kPanelRows, {low[t], high[t]}, scales,
                tile.x[t * tile.x_stride + b].scale);
    }
  }
}

// Groups of four columns whose products add up in 16 bits without overflow:
// depth * 2 * max_code * 127 <= 32767.
constexpr int Depth(int max_code) {
  int depth = 8;
  while (depth * 2 * max_code * 127 > 32767) depth /= 2;
  return depth;
}

// Unsigned codes of one sub-block: integer sums for kT tokens.
template <int kT, int kGroups, int kDepth>
inline void DotUnsigned(const std::byte* codes, const int8_t* x, int64_t x_bytes, __m256i* low,
                        __m256i* high) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int first = 0; first < kGroups; first += kDepth) {
    __m256i sum_low[kT];
    __m256i sum_high[kT];
#pragma GCC unroll 8
    for (int g = first; g < first + kDepth; ++g) {
      const Lanes w = LoadLanes(codes + g * kGroupBytes);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const __m256i group = BroadcastGroup(x + t * x_bytes + 4 * g);
        const __m256i a = _mm256_maddubs_epi16(w.low, group);
        const __m256i c = _mm256_maddubs_epi16(w.high, group);
        sum_low[t] = g == first ? a : _mm256_add_epi16(sum_low[t], a);
        sum_high[t] = g == first ? c : _mm256_add_epi16(sum_high[t], c);
        KeepOrder(sum_low[t], sum_high[t]);
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kT; ++t) {
      const __m256i a = _mm256_madd_epi16(sum_low[t], ones);
      const __m256i c = _mm256_madd_epi16(sum_high[t], ones);
      low[t] = first == 0 ? a : _mm256_add_epi32(low[t], a);
      high[t] = first == 0 ? c : _mm256_add_epi32(high[t], c);
    }
  }
}

template <DType kType, int kT>
inline void MultiplyUnsigned(const CodeSource& w, const Tile& tile) {
  constexpr QuantTraits kTraits = QuantTraitsOf(kType);
  constexpr int kGroups = kTraits.sub_block / 4;
  constexpr int kDepth = std::min(kGroups, Depth(kTraits.max_code));
  constexpr int kHalves = kActivationBlock / kTraits.sub_block;
  const auto x_bytes = static_cast<int64_t>(tile.x_stride * sizeof(ActivationBlock));
  for (int64_t b = 0; b < tile.blocks; ++b) {
    tile.ahead.Fetch(b);
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) {
      const int64_t sub = b * kHalves + half;
      __m256i low[kT];
      __m256i high[kT];
      DotUnsigned<kT, kGroups, kDepth>(w.codes + sub * kGroups * kGroupBytes,
                                       tile.x[b].codes + half * 16, x_bytes, low, high);
      const FloatLanes scales = LoadFloats(w.scales + sub * kPanelRows);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const ActivationBlock& x = tile.x[t * tile.x_stride + b];
        const float x_sum = kHalves == 1 ? x.sum : x.half_sum[half];
        float* y = tile.y + t * kPanelRows;
        if constexpr (kTraits.offset != 0) {
          AddOffset<kTraits.offset>(y, {low[t], high[t]}, scales, x.scale, x_sum);
        } else {
          AddScaled(y, {low[t], high[t]}, scales, x.scale);
          AddMin(y, LoadFloats(w.mins + sub * kPanelRows), x.scale, x_sum);
        }
      }
    }
  }
}

template <DType kType, int kT, Reuse kReuse>
inline void MultiplyTile(const CodeSource& w, const Tile& tile) {
  if constexpr (QuantTraitsOf(kType).codes == CodeKind::kSigned && kReuse == Reuse::kOneTile) {
    MultiplySignedOnce<kType, kT>(w, tile);
  } else if constexpr (QuantTraitsOf(kType).codes == CodeKind::kSigned) {
    MultiplySigned<kT>(w, tile);
  } else {
    MultiplyUnsigned<kType, kT>(w, tile);
  }
}

// w: [columns][16 rows] of kType.
template <DType kType, int kT>
inline void MultiplyFloats(const std::byte* w, const FloatTile& tile) {
  FloatLanes sums[kT];
#pragma GCC unroll 8
  for (int t = 0; t < kT; ++t) sums[t] = LoadFloats(tile.y + t * kPanelRows);
  for (int64_t begin = 0; begin < tile.columns; begin += kActivationBlock) {
    const int64_t end = std::min(begin + kActivationBlock, tile.columns);
    tile.ahead.Fetch(begin / kActivationBlock);
#pragma GCC unroll 4
    for (int64_t k = begin; k < end; ++k) {
      const FloatLanes weights = LoadWeights<kType>(w, k);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const __m256 x = _mm256_broadcast_ss(tile.x + t * tile.x_stride + k);
        sums[t].low = _mm256_fmadd_ps(weights.low, x, sums[t].low);
        sums[t].high = _mm256_fmadd_ps(weights.high, x, sums[t].high);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kT; ++t) StoreFloats(tile.y + t * kPanelRows, sums[t]);
}

}  // namespace quire::kernels::QUIRE_MATMUL_NAMESPACE
