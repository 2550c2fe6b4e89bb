#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/dequantize.h"

namespace quire::kernels {
namespace {

constexpr BlockField kFieldsF32[] = {{4, 4}};
constexpr BlockField kFields16[] = {{2, 2}};
constexpr BlockField kFieldsQ8_0[] = {{2, 2}, {32, 4}};
constexpr BlockField kFieldsQ4_0[] = {{2, 2}, {16, 4}};
constexpr BlockField kFieldsQ4_1[] = {{4, 2}, {16, 4}};
constexpr BlockField kFieldsQ5_0[] = {{2, 2}, {20, 4}};
constexpr BlockField kFieldsQ5_1[] = {{4, 2}, {20, 4}};
constexpr BlockField kFieldsQ2_K[] = {{80, 4}, {4, 2}};
constexpr BlockField kFieldsQ3_K[] = {{108, 4}, {2, 2}};
constexpr BlockField kFieldsQ4_K[] = {{4, 2}, {140, 4}};
constexpr BlockField kFieldsQ5_K[] = {{4, 2}, {172, 4}};
constexpr BlockField kFieldsQ6_K[] = {{208, 4}, {2, 2}};

// Moves the units of one field between a row's block and its lane of the panel block.
template <int kUnit>
void Scatter(const std::byte* block, int bytes, std::byte* lane) {
  for (int unit = 0; unit < bytes / kUnit; ++unit) {
    std::memcpy(lane + unit * kUnit * kPanelRows, block + unit * kUnit, kUnit);
  }
}

template <int kUnit>
void Gather(const std::byte* lane, int bytes, std::byte* block) {
  for (int unit = 0; unit < bytes / kUnit; ++unit) {
    std::memcpy(block + unit * kUnit, lane + unit * kUnit * kPanelRows, kUnit);
  }
}

void ScatterRow(DType type, const std::byte* row, int64_t blocks, int lane, std::byte* panel) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (const BlockField& field : BlockFields(type)) {
      if (field.unit == 4) {
        Scatter<4>(row, field.bytes, panel + lane * 4);
      } else {
        Scatter<2>(row, field.bytes, panel + lane * 2);
      }
      row += field.bytes;
      panel += field.bytes * kPanelRows;
    }
  }
}

}  // namespace

std::span<const BlockField> BlockFields(DType type) {
  switch (type) {
    case DType::kF32:
      return kFieldsF32;
    case DType::kF16:
    case DType::kBF16:
      return kFields16;
    case DType::kQ8_0:
      return kFieldsQ8_0;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return kFieldsQ4_0;
    case DType::kQ4_1:
      return kFieldsQ4_1;
    case DType::kQ5_0:
      return kFieldsQ5_0;
    case DType::kQ5_1:
      return kFieldsQ5_1;
    case DType::kQ2_K:
      return kFieldsQ2_K;
    case DType::kQ3_K:
      return kFieldsQ3_K;
    case DType::kQ4_K:
      return kFieldsQ4_K;
    case DType::kQ5_K:
      return kFieldsQ5_K;
    case DType::kQ6_K:
      return kFieldsQ6_K;
  }
  base::CheckFailed(__FILE__, __LINE__, "BlockFields of an unknown type");
}

void GatherRow(DType type, const std::byte* panel_blocks, int lane, int64_t blocks,
               std::byte* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (const BlockField& field : BlockFields(type)) {
      if (field.unit == 4) {
        Gather<4>(panel_blocks + lane * 4, field.bytes, out);
      } else {
        Gather<2>(panel_blocks + lane * 2, field.bytes, out);
      }
      out += field.bytes;
      panel_blocks += field.bytes * kPanelRows;
    }
  }
}

PackedMatrix::PackedMatrix(DType type, int64_t rows, int64_t cols)
    : type_(type), rows_(rows), cols_(cols), panel_bytes_(RowBytes(type, cols) * kPanelRows) {
  QUIRE_CHECK_GE(rows, 0);
  QUIRE_CHECK_GE(cols, 0);
  buffer_ = Buffer::AllocateOrThrow(panel_bytes_ * static_cast<size_t>(panels()));
}

void PackedMatrix::PackRows(int64_t first_row, const StoredTensor& piece) {
  QUIRE_CHECK(piece.type == type_);
  QUIRE_CHECK_EQ(piece.cols, cols_);
  QUIRE_CHECK_GE(first_row, 0);
  QUIRE_CHECK_LE(first_row + piece.rows, rows_);
  const int64_t blocks = cols_ / Traits(type_).block_elements;
  for (int64_t r = 0; r < piece.rows; ++r) {
    const int64_t row = first_row + r;
    std::byte* panel = buffer_.data() + panel_bytes_ * static_cast<size_t>(row / kPanelRows);
    ScatterRow(type_, piece.row(r), blocks, static_cast<int>(row % kPanelRows), panel);
  }
}

void PackedMatrix::DecodeRow(int64_t row, float* out) const {
  QUIRE_CHECK_GE(row, 0);
  QUIRE_CHECK_LT(row, rows_);
  const DTypeTraits& traits = Traits(type_);
  constexpr int64_t kPieceBytes = 1024;  // holds at least four blocks of every type
  std::byte piece[kPieceBytes];
  const int64_t blocks = cols_ / traits.block_elements;
  const int64_t step = kPieceBytes / traits.block_bytes;
  const std::byte* source = panel(row / kPanelRows);
  for (int64_t b = 0; b < blocks; b += step) {
    const int64_t count = std::min(step, blocks - b);
    GatherRow(type_, source + b * traits.block_bytes * kPanelRows,
              static_cast<int>(row % kPanelRows), count, piece);
    DequantizeRow(type_, piece, count * traits.block_elements, out + b * traits.block_elements);
  }
}

}  // namespace quire::kernels
