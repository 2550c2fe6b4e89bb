// From f32 to the storage types that files are written in. Pure functions of one row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace quire::kernels {

// F32, F16, BF16, Q8_0 and Q4_0; the other types are only ever read.
bool CanQuantizeTo(DType type);

// row[0, RowBytes(type, cols)) = the `cols` values, finite, in `type`; cols is a multiple of the
// block. Rounds to nearest even. Q8_0: the largest magnitude of a block becomes 127. Q4_0: the
// value of largest magnitude becomes -8, so that the wider side of the codes is used (both as the
// ggml formats define their scales).
void QuantizeRow(DType type, const float* values, int64_t cols, std::byte* row);

}  // namespace quire::kernels
