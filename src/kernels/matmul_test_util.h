// Random weights and activations for the matmul tests and benchmarks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_kernels.h"
#include "kernels/packed_matrix.h"
#include "kernels/target.h"
#include "tensor/view.h"

namespace quire::kernels {

inline constexpr DType kAllDTypes[] = {DType::kF32,  DType::kF16,   DType::kBF16, DType::kQ8_0,
                                       DType::kQ4_0, DType::kQ4_1,  DType::kQ5_0, DType::kQ5_1,
                                       DType::kQ2_K, DType::kQ3_K,  DType::kQ4_K, DType::kQ5_K,
                                       DType::kQ6_K, DType::kIQ4_NL};

inline float RandomValue(base::CounterRng& rng, float range) {
  return static_cast<float>(rng.NextUnit() * 2 - 1) * range;
}

// Rows in a file's format: random codes, scales such that values stay around one.
inline std::vector<std::byte> RandomRows(DType type, int64_t rows, int64_t cols, uint64_t seed) {
  base::CounterRng rng(seed, 1, 0);
  std::vector<std::byte> bytes(RowBytes(type, cols) * static_cast<size_t>(rows));
  auto put16 = [&](size_t at, uint16_t bits) { std::memcpy(&bytes[at], &bits, 2); };
  const DTypeTraits& traits = Traits(type);
  if (type == DType::kF32) {
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const float value = RandomValue(rng, 1);
      std::memcpy(&bytes[i], &value, 4);
    }
    return bytes;
  }
  if (!IsQuantized(type)) {
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const float value = RandomValue(rng, 1);
      put16(i, type == DType::kF16 ? F16FromF32(value)
                                   : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    }
    return bytes;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.NextU64());
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(traits.block_bytes)) {
    size_t field_at = at;
    for (const BlockField& field : BlockFields(type)) {  // the 2-byte units are the f16 scales
      for (int i = 0; field.unit == 2 && i < field.bytes; i += 2) {
        put16(field_at + static_cast<size_t>(i), F16FromF32(RandomValue(rng, 0.02f)));
      }
      field_at += static_cast<size_t>(field.bytes);
    }
  }
  return bytes;
}

// Sets every byte but the f16 scales.
inline void FillCodes(DType type, std::byte fill, std::vector<std::byte>& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    for (const BlockField& field : BlockFields(type)) {
      for (int i = 0; i < field.bytes; ++i, ++at) {
        if (field.unit != 2) bytes[at] = fill;
      }
    }
  }
}

inline PackedMatrix RandomMatrix(DType type, int64_t rows, int64_t cols, uint64_t seed) {
  const std::vector<std::byte> bytes = RandomRows(type, rows, cols, seed);
  PackedMatrix matrix(type, rows, cols);
  matrix.PackRows(0, StoredTensor{type, rows, cols, bytes.data()});
  return matrix;
}

inline std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  base::CounterRng rng(seed, 2, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = RandomValue(rng, 2);
  return values;
}

}  // namespace quire::kernels
