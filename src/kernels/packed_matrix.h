// PackedMatrix: the weights of one matrix, laid out for the matmul kernels. Owns its memory.
//
// Rows are interleaved in panels of kPanelRows, so that a SIMD lane is a row and a sum along the
// columns never crosses lanes. A panel is a sequence of panel blocks, one per block of the type:
//
//   F32, F16, BF16   [cols][16 rows]
//   quantized        every field of the file's block in its order, cut into units of 2 or 4 bytes
//                    and interleaved: [unit][16 rows]
//
// The bytes are those of the file, only their order differs; the last panel is padded with zeros.
// PackRows calls must not run concurrently; reading is safe from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/quant_blocks.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace quire::kernels {

inline constexpr int kPanelRows = 16;

// A run of bytes in a block that is interleaved in units of `unit` bytes.
struct BlockField {
  int bytes;
  int unit;
};

// The fields of a block of `type`, in the order of the file. They add up to its block_bytes.
std::span<const BlockField> BlockFields(DType type);

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // All rows zero. cols must be a multiple of the type's block.
  PackedMatrix(DType type, int64_t rows, int64_t cols);

  // Stores the rows [first_row, first_row + piece.rows); the piece has the matrix's type and cols.
  void PackRows(int64_t first_row, const StoredTensor& piece);

  // out[0, cols) = row `row` as f32, exactly what DequantizeRow gives for the file's row.
  void DecodeRow(int64_t row, float* out) const;

  DType type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t bytes() const { return buffer_.bytes(); }

  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  size_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(int64_t index) const {
    return buffer_.data() + panel_bytes_ * static_cast<size_t>(index);
  }

 private:
  DType type_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  size_t panel_bytes_ = 0;
  Buffer buffer_;
};

// Copies `blocks` consecutive blocks of one row (lane 0..15) out of a panel into the file's format.
void GatherRow(DType type, const std::byte* panel_blocks, int lane, int64_t blocks, std::byte* out);

}  // namespace quire::kernels
