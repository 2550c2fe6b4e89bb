#include "kernels/dequantize.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "kernels/matmul_test_util.h"

namespace quire::kernels {
namespace {

TEST(Halves, EveryF16ComesBackFromF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F32FromF16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F32FromF16(F16FromF32(value))));
    } else {
      ASSERT_EQ(F16FromF32(value), bits);
    }
  }
}

TEST(Halves, KnownValues) {
  EXPECT_EQ(F32FromF16(0x3c00), 1.0f);
  EXPECT_EQ(F32FromF16(0xc000), -2.0f);
  EXPECT_EQ(F32FromF16(0x7bff), 65504.0f);
  EXPECT_EQ(F32FromF16(0x0001), 0x1p-24f);
  EXPECT_EQ(F32FromF16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(F16FromF32(65519.0f), 0x7bff);
  EXPECT_EQ(F16FromF32(65520.0f), 0x7c00);
  EXPECT_EQ(F16FromF32(1.0f + 0x1p-11f), 0x3c00);  // a tie goes to even
  EXPECT_EQ(F16FromF32(1.0f + 0x3p-11f), 0x3c02);
  EXPECT_EQ(F16FromF32(0x1p-25f), 0x0000);
  EXPECT_EQ(F16FromF32(0x1.8p-25f), 0x0001);
  EXPECT_EQ(F32FromBf16(0x3f80), 1.0f);
}

TEST(Dequantize, ABlockOfQ4_0ByHand) {
  BlockQ4_0 block = {F16FromF32(0.5f), {}};
  block.qs[0] = 0xf0;  // value 0: code 0; value 16: code 15
  block.qs[3] = 0x38;
  float out[32];
  DequantizeRow(DType::kQ4_0, reinterpret_cast<const std::byte*>(&block), 32, out);
  EXPECT_EQ(out[0], -4.0f);
  EXPECT_EQ(out[16], 3.5f);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[19], -2.5f);
}

TEST(Dequantize, UnpackedBlocksStayWithinTheirTraits) {
  for (DType type : kAllDTypes) {
    if (!IsQuantized(type)) continue;
    const QuantTraits traits = QuantTraitsOf(type);
    const int64_t cols = 2048;
    const std::vector<std::byte> row = RandomRows(type, 1, cols, 3);
    for (int64_t b = 0; b < cols / Traits(type).block_elements; ++b) {
      UnpackedBlock block;
      UnpackBlock(type, row.data() + b * Traits(type).block_bytes, block);
      for (int i = 0; i < Traits(type).block_elements; ++i) {
        ASSERT_LE(block.codes[i], traits.max_code) << Name(type);
        ASSERT_GE(block.codes[i], traits.codes == CodeKind::kSigned ? -128 : 0) << Name(type);
      }
    }
  }
}

}  // namespace
}  // namespace quire::kernels
