#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/quant_blocks.h"

namespace quire::kernels {

namespace {

// To nearest even for |x| < 2^22: the sum pushes the fraction out of the mantissa.
int RoundToInt(float x) {
  constexpr float kShift = 0x1.8p23f;
  float shifted = x + kShift;
  int32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  return bits - 0x4b400000;
}

void QuantizeBlock(const float* values, BlockQ8_0& block) {
  float largest = 0.0f;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float scale = largest / 127.0f;
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  // A tiny block: 1/scale overflows, and so small a scale is zero in f16 anyway.
  const float usable = std::isfinite(inverse) ? inverse : 0.0f;
  block.d = F16FromF32(scale);
  for (int i = 0; i < 32; ++i) {
    block.qs[i] = static_cast<int8_t>(std::clamp(RoundToInt(values[i] * usable), -127, 127));
  }
}

void QuantizeBlock(const float* values, BlockQ4_0& block) {
  float extreme = 0.0f;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(values[i]) > std::fabs(extreme)) extreme = values[i];
  }
  const float scale = extreme / -8.0f;
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  const float usable = std::isfinite(inverse) ? inverse : 0.0f;
  block.d = F16FromF32(scale);
  auto code = [&](float value) {
    return static_cast<uint8_t>(std::clamp(RoundToInt(value * usable) + 8, 0, 15));
  };
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(code(values[i]) | (code(values[16 + i]) << 4));
  }
}

template <typename Block>
void QuantizeBlocks(const float* values, int64_t cols, std::byte* row) {
  for (int64_t i = 0; i < cols; i += 32) {
    Block block;
    QuantizeBlock(values + i, block);
    std::memcpy(row, &block, sizeof(block));
    row += sizeof(block);
  }
}

template <uint16_t (*kConvert)(float)>
void ConvertRow(const float* values, int64_t cols, std::byte* row) {
  for (int64_t i = 0; i < cols; ++i) {
    const uint16_t bits = kConvert(values[i]);
    std::memcpy(row + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

bool CanQuantizeTo(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 ||
         type == DType::kQ8_0 || type == DType::kQ4_0;
}

void QuantizeRow(DType type, const float* values, int64_t cols, std::byte* row) {
  QUIRE_CHECK(CanQuantizeTo(type));
  QUIRE_CHECK_EQ(cols % Traits(type).block_elements, 0);
  switch (type) {
    case DType::kF16:
      return ConvertRow<F16FromF32>(values, cols, row);
    case DType::kBF16:
      return ConvertRow<Bf16FromF32>(values, cols, row);
    case DType::kQ8_0:
      return QuantizeBlocks<BlockQ8_0>(values, cols, row);
    case DType::kQ4_0:
      return QuantizeBlocks<BlockQ4_0>(values, cols, row);
    default:
      std::memcpy(row, values, static_cast<size_t>(cols) * sizeof(float));
  }
}

}  // namespace quire::kernels
