#include "kernels/packed_matrix.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/dequantize.h"
#include "kernels/matmul_test_util.h"

namespace quire::kernels {
namespace {

TEST(PackedMatrix, FieldsAddUpToTheBlock) {
  for (DType type : kAllDTypes) {
    int bytes = 0;
    for (const BlockField& field : BlockFields(type)) {
      bytes += field.bytes;
      EXPECT_EQ(field.bytes % field.unit, 0);
    }
    EXPECT_EQ(bytes, Traits(type).block_bytes) << Name(type);
  }
}

TEST(PackedMatrix, DecodesEveryRowAsTheFileHasItFromPiecesOfAnySize) {
  for (DType type : kAllDTypes) {
    const int64_t rows = 37;
    const int64_t cols = 1280;
    const std::vector<std::byte> bytes = RandomRows(type, rows, cols, 5);
    const size_t row_bytes = RowBytes(type, cols);
    for (int64_t piece : {1, 5, 16, 37}) {
      SCOPED_TRACE(fmt::format("{} in pieces of {}", Name(type), piece));
      PackedMatrix matrix(type, rows, cols);
      for (int64_t first = 0; first < rows; first += piece) {
        const int64_t count = std::min(piece, rows - first);
        matrix.PackRows(first, {type, count, cols, bytes.data() + first * row_bytes});
      }
      std::vector<float> decoded(cols);
      std::vector<float> expected(cols);
      for (int64_t r = 0; r < rows; ++r) {
        matrix.DecodeRow(r, decoded.data());
        DequantizeRow(type, bytes.data() + r * row_bytes, cols, expected.data());
        ASSERT_EQ(decoded, expected) << "row " << r;
      }
    }
  }
}

TEST(PackedMatrix, TakesTheFilesBytesPlusAtMostOnePanelOfPadding) {
  const PackedMatrix matrix(DType::kQ4_K, 33, 512);
  EXPECT_EQ(matrix.bytes(), RowBytes(DType::kQ4_K, 512) * 48);
}

}  // namespace
}  // namespace quire::kernels
