// Elementary functions and fixed-order sums as templates over a SIMD wrapper S (simd_scalar.h).
//
// For x86 include it first of all inside the instruction set's region, once per source file: the
// templates take on the region's target.
#pragma once

#include <cstdint>

namespace quire::kernels {

// A sum over a row keeps this many partial sums, whatever the width of a register.
inline constexpr int kSumLanes = 32;

template <typename S>
struct PartialSums {
  static constexpr int kRegisters = kSumLanes / S::kWidth;
  typename S::F part[kRegisters];

  void Clear() {
    for (auto& p : part) p = S::Set(0.0f);
  }
  float Total() const {
    typename S::F sums[kRegisters];
    for (int i = 0; i < kRegisters; ++i) sums[i] = part[i];
    for (int half = kRegisters / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] = S::Add(sums[i], sums[i + half]);
    }
    return S::SumLanes(sums[0]);
  }
};

// e^x within 2 eps (eps = 2^-24) where the result is a normal number, else within 2^-149.
// x = n ln 2 + r with |r| <= ln(2)/2, where n ln 2 is subtracted without rounding error; e^r by a
// polynomial of degree 6 (Chebyshev interpolation of (e^r - 1 - r)/r^2; error 0.2 eps); 2^n in two
// factors, so that results fade out through the denormals and overflow to infinity.
template <typename S>
[[gnu::always_inline]] inline typename S::F Exp(typename S::F x) {
  using F = typename S::F;
  x = S::Max(S::Set(-110.0f), S::Min(S::Set(90.0f), x));  // NaN passes
  const F magic = S::Set(12582912.0f);                    // 1.5 * 2^23: the sum's low bits are n
  F shifted = S::Fma(x, S::Set(1.44269504f), magic);
  F n = S::Sub(shifted, magic);
  F r = S::NegFma(n, S::Set(0.693147182f), x);
  r = S::NegFma(n, S::Set(-1.90465421e-09f), r);
  F q = S::Set(0.00139261817f);
  q = S::Fma(q, r, S::Set(0.008363178f));
  q = S::Fma(q, r, S::Set(0.0416665561f));
  q = S::Fma(q, r, S::Set(0.166665763f));
  q = S::Fma(q, r, S::Set(0.5f));
  F e = S::Add(S::Fma(q, S::Mul(r, r), r), S::Set(1.0f));
  auto n_bits = S::SubInt(S::BitsOf(shifted), S::BitsOf(magic));
  auto n_low = S::template ShiftRight<1>(n_bits);
  auto n_high = S::SubInt(n_bits, n_low);
  const auto bias = S::SetInt(127);
  F low = S::FromBits(S::template ShiftLeft<23>(S::AddInt(n_low, bias)));
  F high = S::FromBits(S::template ShiftLeft<23>(S::AddInt(n_high, bias)));
  return S::Mul(S::Mul(e, low), high);
}

// tanh x within 6 eps: an odd polynomial below 0.625 (error 0.1 eps), 1 - 2/(e^2|x| + 1) above.
template <typename S>
[[gnu::always_inline]] inline typename S::F Tanh(typename S::F x) {
  using F = typename S::F;
  F magnitude = S::Abs(x);
  F z = S::Mul(x, x);
  F q = S::Set(0.00229274482f);
  q = S::Fma(q, z, S::Set(-0.00834394526f));
  q = S::Fma(q, z, S::Set(0.0217689183f));
  q = S::Fma(q, z, S::Set(-0.0539592579f));
  q = S::Fma(q, z, S::Set(0.133333042f));
  q = S::Fma(q, z, S::Set(-0.333333343f));
  F small = S::Fma(S::Mul(q, z), magnitude, magnitude);
  F e = Exp<S>(S::Add(magnitude, magnitude));
  F large = S::Sub(S::Set(1.0f), S::Div(S::Set(2.0f), S::Add(e, S::Set(1.0f))));
  return S::CopySign(S::SelectLess(magnitude, S::Set(0.625f), small, large), x);
}

// 1 / (1 + e^-x)
template <typename S>
[[gnu::always_inline]] inline typename S::F Sigmoid(typename S::F x) {
  typename S::F e = Exp<S>(S::Sub(S::Set(0.0f), x));
  return S::Div(S::Set(1.0f), S::Add(S::Set(1.0f), e));
}

}  // namespace quire::kernels
