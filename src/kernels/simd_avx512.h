// AVX-512 (F, BW, VL, DQ): sixteen lanes. The interface is described in simd_scalar.h. Only to be
// used inside QUIRE_TARGET_BEGIN_AVX512.
#pragma once

#include <cstdint>

#include "kernels/target.h"

#ifdef QUIRE_HAVE_X86

QUIRE_TARGET_BEGIN_AVX512
namespace quire::kernels {

struct SimdAvx512 {
  static constexpr int kWidth = 16;
  using F = __m512;
  using I = __m512i;

  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static __mmask16 FirstLanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static F LoadPart(const float* p, int64_t n, float fill) {
    return _mm512_mask_loadu_ps(Set(fill), FirstLanes(n), p);
  }
  static void StorePart(float* p, int64_t n, F x) { _mm512_mask_storeu_ps(p, FirstLanes(n), x); }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F NegFma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Abs(F a) { return _mm512_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    return _mm512_or_ps(Abs(magnitude), _mm512_and_ps(Set(-0.0f), sign));
  }
  static F SelectLess(F a, F b, F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
  }
  static uint32_t EqualMask(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static uint32_t NanMask(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }

  static float SumLanes(F a) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float MaxLanes(F a) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  static I SetInt(int32_t x) { return _mm512_set1_epi32(x); }
  static I AddInt(I a, I b) { return _mm512_add_epi32(a, b); }
  static I SubInt(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm512_srai_epi32(a, kBits);
  }
  static I And(I a, I b) { return _mm512_and_si512(a, b); }
  static I LoadInts(const void* p) { return _mm512_loadu_si512(p); }
  static I LoadBytePairs(const void* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static I AddPairProducts(I sum, I a, I b) { return _mm512_dpwssd_epi32(sum, a, b); }
  static F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
  static void StoreAsPairs(const float* p, const float* factors, int32_t* pairs) {
    I integers = _mm512_cvtps_epi32(Mul(Load(p), Load(factors)));
    __m256i low = _mm512_castsi512_si256(integers);
    __m256i high = _mm256_slli_epi32(_mm512_extracti64x4_epi64(integers, 1), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs), _mm256_blend_epi16(low, high, 0xaa));
  }
  static I BitsOf(F a) { return _mm512_castps_si512(a); }
  static F FromBits(I a) { return _mm512_castsi512_ps(a); }

  static void LoadPairs(const float* p, F& even, F& odd) {
    F a = Load(p);
    F b = Load(p + 16);
    I evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    even = _mm512_permutex2var_ps(a, evens, b);
    odd = _mm512_permutex2var_ps(a, AddInt(evens, SetInt(1)), b);
  }
  static void StorePairs(float* p, F even, F odd) {
    I low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    Store(p, _mm512_permutex2var_ps(even, low, odd));
    Store(p + 16, _mm512_permutex2var_ps(even, AddInt(low, SetInt(8)), odd));
  }

  static F LoadF16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void StoreF16(uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F LoadBf16(const uint16_t* p) {
    __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return FromBits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static void StoreBf16(uint16_t* p, F a) {
    I bits = BitsOf(a);
    I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), SetInt(1));
    I rounded = AddInt(bits, AddInt(SetInt(0x7fff), odd));
    I quiet = _mm512_or_si512(bits, SetInt(0x400000));
    I chosen = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16)));
  }
};

}  // namespace quire::kernels
QUIRE_TARGET_END

#endif  // QUIRE_HAVE_X86
