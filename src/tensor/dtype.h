// The storage types of tensors, as GGUF names them (ggml type ids, GGUF specification v3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace quire {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
};
inline constexpr int kDTypeCount = 14;

// A row is stored as whole blocks of block_elements values in block_bytes bytes each.
struct DTypeTraits {
  std::string_view name;
  uint32_t gguf_id;
  int block_elements;
  int block_bytes;
};

inline constexpr DTypeTraits kDTypeTraits[kDTypeCount] = {
    {"F32", 0, 1, 4},       {"F16", 1, 1, 2},       {"BF16", 30, 1, 2},     {"Q8_0", 8, 32, 34},
    {"Q4_0", 2, 32, 18},    {"Q4_1", 3, 32, 20},    {"Q5_0", 6, 32, 22},    {"Q5_1", 7, 32, 24},
    {"Q2_K", 10, 256, 84},  {"Q3_K", 11, 256, 110}, {"Q4_K", 12, 256, 144}, {"Q5_K", 13, 256, 176},
    {"Q6_K", 14, 256, 210}, {"IQ4_NL", 20, 32, 18},
};

constexpr const DTypeTraits& Traits(DType type) {
  return kDTypeTraits[static_cast<int>(type)];
}
constexpr std::string_view Name(DType type) {
  return Traits(type).name;
}

constexpr std::optional<DType> DTypeNamed(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kDTypeTraits[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// Bytes of a row of `elements` values; elements must be a multiple of the block.
constexpr size_t RowBytes(DType type, int64_t elements) {
  const DTypeTraits& traits = Traits(type);
  QUIRE_CHECK(elements % traits.block_elements == 0);
  return static_cast<size_t>(elements / traits.block_elements) * traits.block_bytes;
}

// nullopt: a type this build does not know.
constexpr std::optional<DType> DTypeFromGgufId(uint32_t id) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kDTypeTraits[i].gguf_id == id) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace quire
