// From the file's storage types to f32: portable, exact, the definition that every kernel is tested
// against. Bit for bit what gguf-py computes (scale first, then one multiplication, then one
// addition for the types with a min).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant_blocks.h"
#include "tensor/dtype.h"

namespace quire::kernels {

// One block taken apart: value i of the block is
//   scales[i / sub_block] * (codes[i] - offset) (+ mins[i / sub_block] where the type has mins).
struct UnpackedBlock {
  int16_t codes[kSuperBlock];
  float scales[kSuperBlock / 16];
  float mins[kSuperBlock / 16];
};

// `block` points to one block of a quantized `type` as it lies in a file (any alignment).
void UnpackBlock(DType type, const std::byte* block, UnpackedBlock& unpacked);

// out[0, cols) = the row of `cols` values that starts at `row`; cols is a multiple of the block.
void DequantizeRow(DType type, const std::byte* row, int64_t cols, float* out);

}  // namespace quire::kernels
