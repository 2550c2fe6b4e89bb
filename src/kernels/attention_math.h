// exp and tanh of attention's softmax for one value, and the rotation of a row: the definition that
// every instruction set's version equals bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace quire::kernels {

// exp(x) = 2^n * exp(r), n = round(x / ln 2), r = x - n ln 2 in two steps; exp(r) = 1 + r + r^2
// p(r) with p the minimax polynomial of degree 4 on |r| <= ln(2)/2 (relative error 3e-9, far below
// an f32 rounding).
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693145751953125f;  // 17 bits: n * kLn2High is exact
inline constexpr float kLn2Low = 1.42860682030941723e-6f;
inline constexpr float kExpP[5] = {0.4999999344364642f, 0.16666520571303978f, 0.0416683887769168f,
                                   0.008368724146545561f, 0.0013814581769279763f};
inline constexpr float kExpLowest = -87.0f;        // below: 0
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// exp(x) for x <= 0 within 2 ulp; 0 below kExpLowest; exactly 1 at 0.
inline float ExpNonPositive(float x) {
  if (x < kExpLowest) return 0.0f;
  float shifted = std::fma(x, kLog2E, kRoundMagic);
  float n = shifted - kRoundMagic;
  float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float p = kExpP[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, r, kExpP[i]);
  float value = std::fma(p, r * r, r) + 1.0f;
  // The low bits of `shifted` are n; adding them to the exponent multiplies by 2^n (x >= kExpLowest
  // keeps the result normal).
  uint32_t scale = std::bit_cast<uint32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) + scale);
}

// cap * tanh(s / cap) with an absolute error of at most 4 eps * cap (eps = 2^-24), which is what
// f32 can tell apart at the cap: tanh(x) = sign(x) (1 - t) / (1 + t), t = exp(-2 |x|).
inline float Softcap(float s, float cap) {
  float x = s / cap;
  float t = ExpNonPositive(-2.0f * std::fabs(x));
  return cap * std::copysign((1.0f - t) / (1.0f + t), x);
}

// Multiplies a row by the normalised Hadamard matrix of each power of two in head_dim's binary
// form, largest first. Sums and differences of neighbours at distance 1, 2, 4... in this order,
// then one product per number: the same bits however a compiler vectorises it.
inline void RotateRow(float* row, int head_dim) {
  for (int left = head_dim; left > 0;) {
    const int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(left)));
    for (int half = 1; half < size; half *= 2) {
      for (int first = 0; first < size; first += 2 * half) {
        for (int i = first; i < first + half; ++i) {
          const float a = row[i];
          const float b = row[i + half];
          row[i] = a + b;
          row[i + half] = a - b;
        }
      }
    }
    const float factor = 1.0f / std::sqrt(static_cast<float>(size));
    for (int i = 0; i < size; ++i) row[i] *= factor;
    row += size;
    left -= size;
  }
}

}  // namespace quire::kernels
