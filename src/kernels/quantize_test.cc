#include "kernels/quantize.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/dequantize.h"

namespace quire::kernels {
namespace {

std::vector<float> RoundTrip(DType type, const std::vector<float>& values) {
  const int64_t cols = static_cast<int64_t>(values.size());
  std::vector<std::byte> row(RowBytes(type, cols));
  QuantizeRow(type, values.data(), cols, row.data());
  std::vector<float> decoded(values.size());
  DequantizeRow(type, row.data(), cols, decoded.data());
  return decoded;
}

std::vector<float> RandomValues(uint64_t seed, int count) {
  base::CounterRng rng(seed, 0, 0);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(rng.NextUnit() - 0.5));
  return values;
}

TEST(QuantizeTest, ErrorsStayWithinHalfAStep) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> values = RandomValues(seed, 32);
    float largest = 0.0f;
    float extreme = 0.0f;
    for (float value : values) {
      if (std::fabs(value) > largest) extreme = value;
      largest = std::max(largest, std::fabs(value));
    }
    const std::vector<float> q8 = RoundTrip(DType::kQ8_0, values);
    const std::vector<float> q4 = RoundTrip(DType::kQ4_0, values);
    const float scale_error = 0x1p-11f;  // the scale itself is rounded to f16
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::fabs(q8[i] - values[i]), largest * (0.5f / 127 + 2 * scale_error));
      // The side opposite to the extreme value has one code less.
      const bool clipped = values[i] / extreme < -7.0f / 8;
      const float step = largest / 8;
      EXPECT_LE(std::fabs(q4[i] - values[i]),
                (clipped ? 1.0f : 0.5f) * step + 2 * largest * scale_error);
    }
  }
}

TEST(QuantizeTest, WhatATypeHoldsExactlyComesBackExactly) {
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) values.push_back(static_cast<float>(i - 8) * 0.25f);
  EXPECT_EQ(RoundTrip(DType::kF32, values), values);
  EXPECT_EQ(RoundTrip(DType::kF16, values), values);
  EXPECT_EQ(RoundTrip(DType::kBF16, values), values);
  std::vector<float> codes;
  for (int i = 0; i < 32; ++i) codes.push_back(static_cast<float>(i % 16 - 8) * 0.5f);
  EXPECT_EQ(RoundTrip(DType::kQ4_0, codes), codes);
  std::vector<float> bytes;
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<float>(127 - 8 * i) * 0.125f);
  EXPECT_EQ(RoundTrip(DType::kQ8_0, bytes), bytes);
}

TEST(QuantizeTest, ZeroAndTinyBlocksBecomeZero) {
  const std::vector<float> zeros(32, 0.0f);
  std::vector<float> tiny(32, 1e-43f);
  for (DType type : {DType::kQ8_0, DType::kQ4_0}) {
    EXPECT_EQ(RoundTrip(type, zeros), zeros);
    for (float value : RoundTrip(type, tiny)) EXPECT_EQ(value, 0.0f);
  }
}

TEST(QuantizeTest, HalvesRoundToEven) {
  // 1 + 2^-11 lies between two f16 values, and 1 + 2^-8 between two of bf16.
  EXPECT_EQ(RoundTrip(DType::kF16, {1.0f + 0x1p-11f})[0], 1.0f);
  EXPECT_EQ(RoundTrip(DType::kF16, {1.0f + 0x3p-11f})[0], 1.0f + 0x1p-9f);
  EXPECT_EQ(RoundTrip(DType::kBF16, {1.0f + 0x1p-8f})[0], 1.0f);
  std::vector<float> values(32, 0.0f);
  values[0] = 127.0f;  // scale 1
  values[1] = 2.5f;
  values[2] = 3.5f;
  values[3] = -2.5f;
  const std::vector<float> decoded = RoundTrip(DType::kQ8_0, values);
  EXPECT_EQ(decoded[1], 2.0f);
  EXPECT_EQ(decoded[2], 4.0f);
  EXPECT_EQ(decoded[3], -2.0f);
}

}  // namespace
}  // namespace quire::kernels
