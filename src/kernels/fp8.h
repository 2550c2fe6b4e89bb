// 8-bit floats (OCP "OFP8", 2209.05433): e5m2 is the upper byte of an f16; e4m3 has no infinity and
// reaches 448. Encoding rounds to nearest even and saturates: infinity and NaN are never produced.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace quire::kernels {

struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr int kMinExponent = -6;  // of normal numbers
  static constexpr float kMax = 448.0f;
  // A code in the upper byte of 32 bits, shifted right (with its sign) by kShift and masked, is a
  // float that is 2^-kExponentGap of the value: its exponent has another bias.
  static constexpr int kShift = 4;
  static constexpr uint32_t kMask = 0x87f00000u;
  static constexpr int kExponentGap = 120;
};

struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kMinExponent = -14;
  static constexpr float kMax = 57344.0f;
  static constexpr int kShift = 3;
  static constexpr uint32_t kMask = 0x8fe00000u;
  static constexpr int kExponentGap = 112;
};

// 2^-kExponentGap of a code's value.
template <typename Format>
constexpr float SmallF32FromF8(uint8_t code) {
  const int32_t shifted = static_cast<int32_t>(uint32_t{code} << 24) >> Format::kShift;
  return std::bit_cast<float>(static_cast<uint32_t>(shifted) & Format::kMask);
}

template <typename Format>
constexpr float F32FromF8(uint8_t code) {
  // 2^kExponentGap is a float for every format.
  return SmallF32FromF8<Format>(code) *
         std::bit_cast<float>(static_cast<uint32_t>(127 + Format::kExponentGap) << 23);
}

// NaN becomes 0.
template <typename Format>
inline uint8_t F8FromF32(float x) {
  if (!(x == x)) return 0;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float magnitude = std::fmin(std::fabs(x), Format::kMax);
  constexpr int kDropped = 23 - Format::kMantissaBits;
  constexpr float kSmallestNormal =
      std::bit_cast<float>(static_cast<uint32_t>(127 + Format::kMinExponent) << 23);
  if (magnitude < kSmallestNormal) {
    // Denormals count steps of 2^(kMinExponent - kMantissaBits); the first normal number follows.
    constexpr float kPerStep = static_cast<float>(1 << Format::kMantissaBits) / kSmallestNormal;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float steps = (magnitude * kPerStep + kRound) - kRound;
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(steps));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1u);
  const uint32_t exponent_offset = static_cast<uint32_t>(127 + Format::kMinExponent - 1);
  return static_cast<uint8_t>(sign |
                              ((rounded >> kDropped) - (exponent_offset << Format::kMantissaBits)));
}

}  // namespace quire::kernels
