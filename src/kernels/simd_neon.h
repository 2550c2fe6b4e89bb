// NEON (AArch64): four lanes. The interface is described in simd_scalar.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/target.h"

#ifdef QUIRE_HAVE_NEON

namespace quire::kernels {

struct SimdNeon {
  static constexpr int kWidth = 4;
  using F = float32x4_t;
  using I = int32x4_t;

  static F Set(float x) { return vdupq_n_f32(x); }
  static F Load(const float* p) { return vld1q_f32(p); }
  static void Store(float* p, F x) { vst1q_f32(p, x); }
  static F LoadPart(const float* p, int64_t n, float fill) {
    float lanes[kWidth] = {fill, fill, fill, fill};
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return Load(lanes);
  }
  static void StorePart(float* p, int64_t n, F x) {
    float lanes[kWidth];
    Store(lanes, x);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }

  static F Add(F a, F b) { return vaddq_f32(a, b); }
  static F Sub(F a, F b) { return vsubq_f32(a, b); }
  static F Mul(F a, F b) { return vmulq_f32(a, b); }
  static F Div(F a, F b) { return vdivq_f32(a, b); }
  static F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F NegFma(F a, F b, F c) { return vfmsq_f32(c, a, b); }
  // By comparison: the processor's own min and max treat NaN otherwise than simd_scalar.h says.
  static F Min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F Max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F Abs(F a) { return vabsq_f32(a); }
  static F CopySign(F magnitude, F sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude);
  }
  static F SelectLess(F a, F b, F x, F y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
  static uint32_t MaskOf(uint32x4_t lanes) {
    const uint32_t bit[kWidth] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(lanes, vld1q_u32(bit)));
  }
  static uint32_t EqualMask(F a, F b) { return MaskOf(vceqq_f32(a, b)); }
  static uint32_t NanMask(F a) { return MaskOf(vmvnq_u32(vceqq_f32(a, a))); }

  static float SumLanes(F a) {
    float32x2_t s = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
  }
  static float MaxLanes(F a) {
    F s = Max(a, vextq_f32(a, a, 2));
    return vgetq_lane_f32(Max(s, vdupq_laneq_f32(s, 1)), 0);
  }

  static I SetInt(int32_t x) { return vdupq_n_s32(x); }
  static I AddInt(I a, I b) { return vaddq_s32(a, b); }
  static I SubInt(I a, I b) { return vsubq_s32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return vshlq_n_s32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return vshrq_n_s32(a, kBits);
  }
  static I And(I a, I b) { return vandq_s32(a, b); }
  static I LoadInts(const void* p) {
    return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  }
  static I LoadBytePairs(const void* p) {
    return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(static_cast<const int8_t*>(p))));
  }
  static I AddPairProducts(I sum, I a, I b) {
    int16x8_t x = vreinterpretq_s16_s32(a);
    int16x8_t y = vreinterpretq_s16_s32(b);
    return vaddq_s32(sum,
                     vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
  }
  static F ToFloat(I a) { return vcvtq_f32_s32(a); }
  static void StoreAsPairs(const float* p, const float* factors, int32_t* pairs) {
    for (int i = 0; i < 8; i += kWidth) {
      I low = vcvtnq_s32_f32(Mul(Load(p + i), Load(factors + i)));
      I high = vcvtnq_s32_f32(Mul(Load(p + 8 + i), Load(factors + 8 + i)));
      vst1q_s32(pairs + i, vsliq_n_s32(low, high, 16));
    }
  }
  static I BitsOf(F a) { return vreinterpretq_s32_f32(a); }
  static F FromBits(I a) { return vreinterpretq_f32_s32(a); }

  static void LoadPairs(const float* p, F& even, F& odd) {
    float32x4x2_t pair = vld2q_f32(p);
    even = pair.val[0];
    odd = pair.val[1];
  }
  static void StorePairs(float* p, F even, F odd) {
    float32x4x2_t pair;
    pair.val[0] = even;
    pair.val[1] = odd;
    vst2q_f32(p, pair);
  }

  static F LoadF16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void StoreF16(uint16_t* p, F a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
  static F LoadBf16(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
  }
  static void StoreBf16(uint16_t* p, F a) {
    uint32x4_t bits = vreinterpretq_u32_f32(a);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(vdupq_n_u32(0x7fff), odd));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet), 16));
  }
};

}  // namespace quire::kernels

#endif  // QUIRE_HAVE_NEON
