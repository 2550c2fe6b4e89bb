#include "kernels/matmul.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/matmul_kernels.h"
#include "kernels/matmul_reference.h"
#include "kernels/matmul_test_util.h"

namespace quire::kernels {
namespace {

KernelTable TableOf(const MatmulKernels* matmul) {
  return {Isa::kScalar, "test", true, matmul, nullptr, nullptr};
}

std::vector<float> Multiply(const KernelTable& table, const PackedMatrix& weights,
                            MatrixView<const float> x, int threads) {
  base::ThreadTeam team(threads);
  PackedActivations packed(x.rows, x.cols);
  packed.Set(table, x, ActivationFormFor(weights.type()), team);
  std::vector<float> out(static_cast<size_t>(x.rows * weights.rows()));
  const MatmulJob job = {&weights, {out.data(), x.rows, weights.rows()}, nullptr};
  Matmul(table, packed, {&job, 1}, team);
  return out;
}

TEST(Matmul, EveryTypeStaysWithinTheDerivedToleranceOfDoublePrecision) {
  for (DType type : kAllDTypes) {
    SCOPED_TRACE(Name(type));
    const PackedMatrix weights = RandomMatrix(type, 37, 512, 11);
    const std::vector<float> x = RandomFloats(5 * 512, 12);
    const MatrixView<const float> view(x.data(), 5, 512);
    const std::vector<float> out = Multiply(TableOf(&kScalarMatmul), weights, view, 2);
    const MatmulReference reference = MultiplyReference(weights, view, nullptr);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_LE(std::abs(out[i] - reference.values[i]), reference.tolerance[i]) << "element " << i;
    }
  }
}

TEST(PackedMatrix, DecodesEveryRowAsTheFileHasIt) {
  for (DType type : kAllDTypes) {
    SCOPED_TRACE(Name(type));
    const int64_t rows = 21;
    const int64_t cols = 768;
    const std::vector<std::byte> bytes = RandomRows(type, rows, cols, 5);
    PackedMatrix matrix(type, rows, cols);
    const size_t row_bytes = RowBytes(type, cols);
    for (int64_t first = 0; first < rows; first += 5) {
      const int64_t count = std::min<int64_t>(5, rows - first);
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

}  // namespace
}  // namespace quire::kernels
