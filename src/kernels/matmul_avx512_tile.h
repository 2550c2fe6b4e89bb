// AVX-512 tile kernels: 16 rows are the lanes of one register, and vpdpbusd adds four products to
// each without rounding or saturation. Included by matmul_avx512.cc alone, inside its target
// region.
#pragma once

#ifndef QUIRE_MATMUL_NAMESPACE
#error "only matmul_avx512.cc includes this header"
#endif

namespace quire::kernels::QUIRE_MATMUL_NAMESPACE {

inline constexpr int kTileTokens = 6;
inline constexpr int kFloatTileTokens = 8;

inline __m512i BroadcastGroup(const int8_t* codes) {
  int32_t four = 0;
  std::memcpy(&four, codes, 4);
  return _mm512_set1_epi32(four);
}

// One sub-block. vpdpbusd multiplies unsigned by signed: signed codes are biased by 128, which the
// caller takes off again with the sum of the activation codes.
template <CodeKind kCodes, int kGroups, int kT>
inline void DotCodes(const std::byte* codes, const int8_t* x, int64_t x_bytes, __m512i* sums) {
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 8
  for (int t = 0; t < kT; ++t) sums[t] = _mm512_setzero_si512();
  for (int g = 0; g < kGroups; ++g) {
    __m512i w = _mm512_loadu_si512(codes + g * kGroupBytes);
    if constexpr (kCodes == CodeKind::kSigned) w = _mm512_xor_si512(w, bias);
#pragma GCC unroll 8
    for (int t = 0; t < kT; ++t) {
      sums[t] = _mm512_dpbusd_epi32(sums[t], w, BroadcastGroup(x + t * x_bytes + 4 * g));
    }
  }
}

template <DType kType, int kT, Reuse kReuse>
inline void MultiplyTile(const CodeSource& w, const Tile& tile) {
  constexpr QuantTraits kTraits = QuantTraitsOf(kType);
  constexpr int kGroups = kTraits.sub_block / 4;
  constexpr int kHalves = kActivationBlock / kTraits.sub_block;
  constexpr int kOffset = kTraits.codes == CodeKind::kSigned ? 128 : kTraits.offset;
  const auto x_bytes = static_cast<int64_t>(tile.x_stride * sizeof(ActivationBlock));
  for (int64_t b = 0; b < tile.blocks; ++b) {
    tile.ahead.Fetch(b);
    for (int half = 0; half < kHalves; ++half) {
      const int64_t sub = b * kHalves + half;
      __m512i dots[kT];
      DotCodes<kTraits.codes, kGroups, kT>(
          w.codes + b * w.codes_stride + half * kGroups * kGroupBytes, tile.x[b].codes + half * 16,
          x_bytes, dots);
      const __m512 scales = _mm512_loadu_ps(w.scales + sub * kPanelRows);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const ActivationBlock& x = tile.x[t * tile.x_stride + b];
        const float x_sum = kHalves == 1 ? x.sum : x.half_sum[half];
        float* y = tile.y + t * kPanelRows;
        // Both terms are integers below 2^24, so their difference is exact.
        __m512 dot = _mm512_cvtepi32_ps(dots[t]);
        if constexpr (kOffset != 0) dot = _mm512_sub_ps(dot, _mm512_set1_ps(x_sum * kOffset));
        __m512 sum = _mm512_loadu_ps(y);
        sum = _mm512_fmadd_ps(_mm512_mul_ps(scales, _mm512_set1_ps(x.scale)), dot, sum);
        if constexpr (kTraits.mins == MinKind::kPerSubBlock) {
          const __m512 mins = _mm512_loadu_ps(w.mins + sub * kPanelRows);
          sum = _mm512_fmadd_ps(mins, _mm512_set1_ps(x.scale * x_sum), sum);
        }
        _mm512_storeu_ps(y, sum);
      }
    }
  }
}

// w: [columns][16 rows] of kType.
template <DType kType, int kT>
inline void MultiplyFloats(const std::byte* w, const FloatTile& tile) {
  __m512 sums[kT];
#pragma GCC unroll 8
  for (int t = 0; t < kT; ++t) sums[t] = _mm512_loadu_ps(tile.y + t * kPanelRows);
  for (int64_t begin = 0; begin < tile.columns; begin += kActivationBlock) {
    const int64_t end = std::min(begin + kActivationBlock, tile.columns);
    tile.ahead.Fetch(begin / kActivationBlock);
    for (int64_t k = begin; k < end; ++k) {
      const FloatLanes lanes = LoadWeights<kType>(w, k);
      const __m512 weights = _mm512_insertf32x8(_mm512_castps256_ps512(lanes.low), lanes.high, 1);
#pragma GCC unroll 8
      for (int t = 0; t < kT; ++t) {
        const __m512 x = _mm512_set1_ps(tile.x[t * tile.x_stride + k]);
        sums[t] = _mm512_fmadd_ps(weights, x, sums[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kT; ++t) _mm512_storeu_ps(tile.y + t * kPanelRows, sums[t]);
}

}  // namespace quire::kernels::QUIRE_MATMUL_NAMESPACE
