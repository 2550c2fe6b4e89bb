// 8-bit floats (OCP "OFP8", 2209.05433): e5m2 is the upper byte of an f16; e4m3 has no infinity and
// reaches 448. Encoding rounds to nearest even and saturates: infinity and NaN are never produced.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/half.h"

namespace quire::kernels {

struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr int kMinExponent = -6;  // of normal numbers
  static constexpr float kMax = 448.0f;
  // A code's f16 twin has its sign and, shifted left by 7, its other bits; it is 2^-8 of the value.
  static constexpr float kF16Factor = 256.0f;
  static constexpr uint16_t F16Twin(uint8_t code) {
    return static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7);
  }
};

struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kMinExponent = -14;
  static constexpr float kMax = 57344.0f;
  static constexpr float kF16Factor = 1.0f;
  static constexpr uint16_t F16Twin(uint8_t code) { return static_cast<uint16_t>(code << 8); }
};

template <typename Format>
constexpr float F32FromF8(uint8_t code) {
  return F32FromF16(Format::F16Twin(code)) * Format::kF16Factor;
}

// NaN becomes 0.
template <typename Format>
inline uint8_t F8FromF32(float x) {
  if (!(x == x)) return 0;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float magnitude = std::fmin(std::fabs(x), Format::kMax);
  constexpr int kDropped = 23 - Format::kMantissaBits;
  if (magnitude < std::ldexp(1.0f, Format::kMinExponent)) {
    // Denormals count steps of 2^(kMinExponent - kMantissaBits); the first normal number follows.
    const float steps =
        std::nearbyint(std::ldexp(magnitude, Format::kMantissaBits - Format::kMinExponent));
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(steps));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1u);
  const uint32_t exponent_offset = static_cast<uint32_t>(127 + Format::kMinExponent - 1);
  return static_cast<uint8_t>(sign |
                              ((rounded >> kDropped) - (exponent_offset << Format::kMantissaBits)));
}

}  // namespace quire::kernels
