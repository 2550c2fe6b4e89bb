// The scalar twin of the SIMD wrappers: eight lanes as an array, every operation lane by lane.
//
// The wrappers (simd_scalar.h, simd_avx2.h, simd_avx512.h, simd_neon.h) are one interface in four
// widths. A kernel is a template over it and is written once. Results are equal bit for bit on all
// of them as long as a kernel keeps its sums in kSumLanes partial sums (simd_math.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"

namespace quire::kernels {

struct SimdScalar {
  static constexpr int kWidth = 8;
  struct F {  // kWidth floats
    float lane[kWidth];
  };
  struct I {  // kWidth integers of 32 bits
    int32_t lane[kWidth];
  };

  template <typename Op>
  static F Each(Op op) {
    F out;
    for (int i = 0; i < kWidth; ++i) out.lane[i] = op(i);
    return out;
  }
  template <typename Op>
  static I EachInt(Op op) {
    I out;
    for (int i = 0; i < kWidth; ++i) out.lane[i] = op(i);
    return out;
  }

  static F Set(float x) {
    return Each([&](int) { return x; });
  }
  static F Load(const float* p) {
    return Each([&](int i) { return p[i]; });
  }
  static void Store(float* p, F x) {
    for (int i = 0; i < kWidth; ++i) p[i] = x.lane[i];
  }
  // The first n lanes from memory, the others `fill`; 0 <= n <= kWidth.
  static F LoadPart(const float* p, int64_t n, float fill) {
    return Each([&](int i) { return i < n ? p[i] : fill; });
  }
  static void StorePart(float* p, int64_t n, F x) {
    for (int i = 0; i < n; ++i) p[i] = x.lane[i];
  }

  static F Add(F a, F b) {
    return Each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F Sub(F a, F b) {
    return Each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F Mul(F a, F b) {
    return Each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F Div(F a, F b) {
    return Each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // a * b + c and c - a * b, each with one rounding.
  static F Fma(F a, F b, F c) {
    return Each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F NegFma(F a, F b, F c) {
    return Each([&](int i) { return std::fma(-a.lane[i], b.lane[i], c.lane[i]); });
  }
  // The second operand where one of them is NaN (as x86 does).
  static F Min(F a, F b) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F Max(F a, F b) {
    return Each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F Abs(F a) {
    return Each([&](int i) { return std::fabs(a.lane[i]); });
  }
  static F CopySign(F magnitude, F sign) {
    return Each([&](int i) { return std::copysign(magnitude.lane[i], sign.lane[i]); });
  }
  // a < b ? x : y
  static F SelectLess(F a, F b, F x, F y) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
  }
  // Bit i is set where lane i holds true.
  static uint32_t EqualMask(F a, F b) {
    uint32_t mask = 0;
    for (int i = 0; i < kWidth; ++i) mask |= static_cast<uint32_t>(a.lane[i] == b.lane[i]) << i;
    return mask;
  }
  static uint32_t NanMask(F a) {
    uint32_t mask = 0;
    for (int i = 0; i < kWidth; ++i) mask |= static_cast<uint32_t>(std::isnan(a.lane[i])) << i;
    return mask;
  }

  // Sums the lanes: halves are added until one lane is left.
  static float SumLanes(F a) {
    for (int half = kWidth / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
    }
    return a.lane[0];
  }
  static float MaxLanes(F a) {
    for (int half = kWidth / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
      }
    }
    return a.lane[0];
  }

  static I SetInt(int32_t x) {
    return EachInt([&](int) { return x; });
  }
  static I AddInt(I a, I b) {  // wraps
    return EachInt([&](int i) {
      return static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) +
                                  static_cast<uint32_t>(b.lane[i]));
    });
  }
  static I SubInt(I a, I b) {  // wraps
    return EachInt([&](int i) {
      return static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) -
                                  static_cast<uint32_t>(b.lane[i]));
    });
  }
  template <int kBits>
  static I ShiftLeft(I a) {
    return EachInt(
        [&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) << kBits); });
  }
  template <int kBits>
  static I ShiftRight(I a) {  // keeps the sign
    return EachInt([&](int i) { return a.lane[i] >> kBits; });
  }
  static I And(I a, I b) {
    return EachInt([&](int i) { return a.lane[i] & b.lane[i]; });
  }
  static I LoadInts(const void* p) {
    I out;
    std::memcpy(&out, p, sizeof(out));
    return out;
  }
  // Lanes as pairs of 16-bit integers, the first one below: from 8-bit ones, and sum + both
  // products of two such pairs.
  static I LoadBytePairs(const void* p) {
    const auto* bytes = static_cast<const int8_t*>(p);
    return EachInt([&](int i) { return (bytes[2 * i] & 0xffff) | bytes[2 * i + 1] * 0x10000; });
  }
  static I AddPairProducts(I sum, I a, I b) {
    auto low = [](int32_t x) { return int32_t{static_cast<int16_t>(x)}; };
    return EachInt([&](int i) {
      return sum.lane[i] + low(a.lane[i]) * low(b.lane[i]) + (a.lane[i] >> 16) * (b.lane[i] >> 16);
    });
  }
  static F ToFloat(I a) {
    return Each([&](int i) { return static_cast<float>(a.lane[i]); });
  }
  // Eight pairs (p[i], p[i + 8]) of p * factors, rounded to nearest even; all of them fit 16 bits,
  // but NaN becomes 0.
  static void StoreAsPairs(const float* p, const float* factors, int32_t* pairs) {
    auto rounded = [&](int i) {
      const float x = std::nearbyint(p[i] * factors[i]);
      return x == x ? static_cast<int32_t>(x) : 0;
    };
    for (int i = 0; i < 8; ++i) pairs[i] = (rounded(i) & 0xffff) | rounded(i + 8) * 0x10000;
  }
  static I BitsOf(F a) {
    return EachInt([&](int i) { return std::bit_cast<int32_t>(a.lane[i]); });
  }
  static F FromBits(I a) {
    return Each([&](int i) { return std::bit_cast<float>(a.lane[i]); });
  }

  // 2 * kWidth floats as (even, odd) elements, and back.
  static void LoadPairs(const float* p, F& even, F& odd) {
    even = Each([&](int i) { return p[2 * i]; });
    odd = Each([&](int i) { return p[2 * i + 1]; });
  }
  static void StorePairs(float* p, F even, F odd) {
    for (int i = 0; i < kWidth; ++i) {
      p[2 * i] = even.lane[i];
      p[2 * i + 1] = odd.lane[i];
    }
  }

  static F LoadF16(const uint16_t* p) {
    return Each([&](int i) { return F32FromF16(p[i]); });
  }
  static void StoreF16(uint16_t* p, F a) {
    for (int i = 0; i < kWidth; ++i) p[i] = F16FromF32(a.lane[i]);
  }
  static F LoadBf16(const uint16_t* p) {
    return Each([&](int i) { return F32FromBf16(p[i]); });
  }
  static void StoreBf16(uint16_t* p, F a) {
    for (int i = 0; i < kWidth; ++i) p[i] = Bf16FromF32(a.lane[i]);
  }
};

}  // namespace quire::kernels
