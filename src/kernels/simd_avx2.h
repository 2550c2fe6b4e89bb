// AVX2 + FMA + F16C: eight lanes. The interface is described in simd_scalar.h. Only to be used
// inside QUIRE_TARGET_BEGIN_AVX2.
#pragma once

#include <cstdint>

#include "kernels/target.h"

#ifdef QUIRE_HAVE_X86

namespace quire::kernels {

// Eight ones, then eight zeros: &kLaneMask[8 - n] selects the first n lanes.
alignas(64) inline constexpr int32_t kLaneMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                      0,  0,  0,  0,  0,  0,  0,  0};

}  // namespace quire::kernels

QUIRE_TARGET_BEGIN_AVX2
namespace quire::kernels {

struct SimdAvx2 {
  static constexpr int kWidth = 8;
  using F = __m256;
  using I = __m256i;

  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static I FirstLanes(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMask + 8 - n));
  }
  static F LoadPart(const float* p, int64_t n, float fill) {
    I mask = FirstLanes(n);
    return _mm256_blendv_ps(Set(fill), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
  }
  static void StorePart(float* p, int64_t n, F x) { _mm256_maskstore_ps(p, FirstLanes(n), x); }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F NegFma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Abs(F a) { return _mm256_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    return _mm256_or_ps(Abs(magnitude), _mm256_and_ps(Set(-0.0f), sign));
  }
  static F SelectLess(F a, F b, F x, F y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static uint32_t EqualMask(F a, F b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }
  static uint32_t NanMask(F a) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  }

  static float SumLanes(F a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float MaxLanes(F a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  static I SetInt(int32_t x) { return _mm256_set1_epi32(x); }
  static I AddInt(I a, I b) { return _mm256_add_epi32(a, b); }
  static I SubInt(I a, I b) { return _mm256_sub_epi32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm256_srai_epi32(a, kBits);
  }
  static I And(I a, I b) { return _mm256_and_si256(a, b); }
  static I LoadInts(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static I LoadBytePairs(const void* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static I AddPairProducts(I sum, I a, I b) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    // Keeps g++ from adding up products first (integer sums may be reordered): it would need far
    // more registers than there are.
    asm("" : "+x"(sum));
    return sum;
  }
  static F ToFloat(I a) { return _mm256_cvtepi32_ps(a); }
  static void StoreAsPairs(const float* p, const float* factors, int32_t* pairs) {
    I low = _mm256_cvtps_epi32(Mul(Load(p), Load(factors)));
    I high = _mm256_cvtps_epi32(Mul(Load(p + 8), Load(factors + 8)));
    I both = _mm256_blend_epi16(low, ShiftLeft<16>(high), 0xaa);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs), both);
  }
  static I BitsOf(F a) { return _mm256_castps_si256(a); }
  static F FromBits(I a) { return _mm256_castsi256_ps(a); }

  static void LoadPairs(const float* p, F& even, F& odd) {
    F a = Load(p);
    F b = Load(p + 8);
    F low = _mm256_permute2f128_ps(a, b, 0x20);   // p0..3, p8..11
    F high = _mm256_permute2f128_ps(a, b, 0x31);  // p4..7, p12..15
    even = _mm256_shuffle_ps(low, high, 0x88);
    odd = _mm256_shuffle_ps(low, high, 0xdd);
  }
  static void StorePairs(float* p, F even, F odd) {
    F low = _mm256_unpacklo_ps(even, odd);   // pairs 0 1 | 4 5
    F high = _mm256_unpackhi_ps(even, odd);  // pairs 2 3 | 6 7
    Store(p, _mm256_permute2f128_ps(low, high, 0x20));
    Store(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }

  static F LoadF16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void StoreF16(uint16_t* p, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F LoadBf16(const uint16_t* p) {
    __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return FromBits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static void StoreBf16(uint16_t* p, F a) {
    I bits = BitsOf(a);
    I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), SetInt(1));
    I rounded = AddInt(bits, AddInt(SetInt(0x7fff), odd));
    I quiet = _mm256_or_si256(bits, SetInt(0x400000));
    I is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    I high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), half);
  }
};

}  // namespace quire::kernels
QUIRE_TARGET_END

#endif  // QUIRE_HAVE_X86
