#include "kernels/matmul.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/matmul_kernels.h"
#include "kernels/matmul_reference.h"
#include "kernels/matmul_test_util.h"

namespace quire::kernels {
namespace {

constexpr uint64_t kSeed = 20240229;

struct Problem {
  DType type;
  int64_t rows;
  int64_t cols;
  int64_t tokens;
};

std::string Describe(const Problem& p) {
  return fmt::format("{} rows {} cols {} tokens {} seed {}", Name(p.type), p.rows, p.cols, p.tokens,
                     kSeed);
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

// The first element whose bits differ; NaN equals NaN.
void ExpectSameBits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << "element " << i << ": " << a[i] << " against " << b[i];
  }
}

// Odd shapes: rows beside the panel, one block, several chunks of columns.
std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  for (DType type : kAllDTypes) {
    const int64_t block = Traits(type).block_elements;
    for (int64_t rows : {1, 16, 37}) {
      for (int64_t cols : {block, 256 / block * block + 3 * block, 9 * int64_t{256}}) {
        for (int64_t tokens : {1, 2, 3, 5, 8, 17}) problems.push_back({type, rows, cols, tokens});
      }
    }
    problems.push_back({type, 19, 1280, 64});
    problems.push_back({type, 5, 512, 130});
  }
  return problems;
}

class MatmulTables : public ::testing::TestWithParam<KernelTable> {};

TEST_P(MatmulTables, GiveTheScalarTwinsBits) {
  for (const Problem& p : Problems()) {
    SCOPED_TRACE(Describe(p));
    const PackedMatrix weights = RandomMatrix(p.type, p.rows, p.cols, kSeed);
    const std::vector<float> x = RandomFloats(p.tokens * p.cols, kSeed + 1);
    const MatrixView<const float> view(x.data(), p.tokens, p.cols);
    ExpectSameBits(Multiply(GetParam(), weights, view, 1),
                   Multiply(AvailableKernels().front(), weights, view, 1));
    if (HasFatalFailure()) return;
  }
}

TEST_P(MatmulTables, StayWithinTheDerivedToleranceOfDoublePrecision) {
  for (DType type : kAllDTypes) {
    SCOPED_TRACE(Name(type));
    const PackedMatrix weights = RandomMatrix(type, 37, 1536, kSeed);
    const std::vector<float> x = RandomFloats(5 * 1536, kSeed + 1);
    const MatrixView<const float> view(x.data(), 5, 1536);
    const std::vector<float> out = Multiply(GetParam(), weights, view, 2);
    const MatmulReference reference = MultiplyReference(weights, view, nullptr);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_LE(std::abs(out[i] - reference.values[i]), reference.tolerance[i]) << "element " << i;
    }
  }
}

TEST_P(MatmulTables, ATokenAloneEqualsTheTokenInABatchBitForBit) {
  for (DType type : kAllDTypes) {
    SCOPED_TRACE(Name(type));
    const int64_t rows = 33;
    const int64_t cols = 1280;
    const int64_t tokens = 19;
    const PackedMatrix weights = RandomMatrix(type, rows, cols, kSeed);
    const std::vector<float> x = RandomFloats(tokens * cols, kSeed + 2);
    const MatrixView<const float> view(x.data(), tokens, cols);
    const std::vector<float> batch = Multiply(GetParam(), weights, view, 1);
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<float> alone = Multiply(GetParam(), weights, view.row_range(t, 1), 1);
      ExpectSameBits(alone, std::span(batch).subspan(t * rows, rows));
    }
  }
}

TEST_P(MatmulTables, TheNumberOfThreadsChangesNoBit) {
  for (DType type : kAllDTypes) {
    SCOPED_TRACE(Name(type));
    const PackedMatrix weights = RandomMatrix(type, 200, 512, kSeed);
    const std::vector<float> x = RandomFloats(7 * 512, kSeed + 3);
    const MatrixView<const float> view(x.data(), 7, 512);
    const std::vector<float> one = Multiply(GetParam(), weights, view, 1);
    for (int threads : {2, 3}) ExpectSameBits(Multiply(GetParam(), weights, view, threads), one);
  }
}

TEST_P(MatmulTables, ExtremeCodesNeitherSaturateNorOverflow) {
  for (DType type : kAllDTypes) {
    if (!IsQuantized(type)) continue;
    for (int fill : {0x00, 0x7f, 0x80, 0xff, 0x88, 0x77}) {
      SCOPED_TRACE(fmt::format("{} filled with {:#x}", Name(type), fill));
      const int64_t cols = 2304;
      std::vector<std::byte> bytes = RandomRows(type, 16, cols, kSeed);
      FillCodes(type, static_cast<std::byte>(fill), bytes);
      PackedMatrix weights(type, 16, cols);
      weights.PackRows(0, {type, 16, cols, bytes.data()});
      std::vector<float> x(static_cast<size_t>(4 * cols), 1.0f);
      for (size_t i = cols; i < 2 * static_cast<size_t>(cols); ++i) x[i] = -1.0f;
      for (size_t i = 2 * static_cast<size_t>(cols); i < x.size(); ++i) x[i] = i % 2 ? 1.0f : -1.0f;
      const MatrixView<const float> view(x.data(), 4, cols);
      ExpectSameBits(Multiply(GetParam(), weights, view, 1),
                     Multiply(AvailableKernels().front(), weights, view, 1));
    }
  }
}

TEST_P(MatmulTables, ExtremeActivationsStayWithTheirToken) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (DType type : kAllDTypes) {
    SCOPED_TRACE(Name(type));
    const int64_t cols = 512;
    const PackedMatrix weights = RandomMatrix(type, 24, cols, kSeed);
    const std::vector<float> clean = RandomFloats(cols, kSeed + 4);
    for (float extreme : {0.0f, -0.0f, 1e-45f, 1e-38f, 3e38f, -3e38f, kInf, -kInf, kNan}) {
      SCOPED_TRACE(extreme);
      std::vector<float> x(static_cast<size_t>(6 * cols));
      for (int t = 0; t < 6; ++t) std::copy(clean.begin(), clean.end(), x.begin() + t * cols);
      for (int64_t k = 0; k < cols; k += 3) x[2 * cols + k] = extreme;
      const MatrixView<const float> view(x.data(), 6, cols);
      const std::vector<float> out = Multiply(GetParam(), weights, view, 1);
      ExpectSameBits(out, Multiply(AvailableKernels().front(), weights, view, 1));
      for (int t : {0, 1, 3, 4, 5}) {
        ExpectSameBits(std::span(out).subspan(t * 24, 24),
                       Multiply(GetParam(), weights, view.row_range(0, 1), 1));
      }
      if (!std::isfinite(extreme)) {
        for (int r = 0; r < 24; ++r) ASSERT_FALSE(std::isfinite(out[2 * 24 + r]));
      }
    }
  }
}

TEST_P(MatmulTables, RunSeveralJobsOfMixedTypesWithBiasesAndStridedOutputs) {
  const int64_t cols = 512;
  const int64_t tokens = 9;
  const PackedMatrix a = RandomMatrix(DType::kQ8_0, 40, cols, kSeed);
  const PackedMatrix b = RandomMatrix(DType::kF16, 17, cols, kSeed + 1);
  const PackedMatrix c = RandomMatrix(DType::kQ4_K, 64, cols, kSeed + 2);
  const std::vector<float> x = RandomFloats(tokens * cols, kSeed + 3);
  const std::vector<float> bias = RandomFloats(64, kSeed + 4);
  const MatrixView<const float> view(x.data(), tokens, cols);
  base::ThreadTeam team(2);
  PackedActivations packed(tokens, cols);
  const PackedMatrix* matrices[] = {&a, &b, &c};
  packed.Set(GetParam(), view, ActivationFormFor(matrices), team);
  // One output row holds all three results and seven guard values.
  constexpr float kGuard = 12345.0f;
  const int64_t stride = 40 + 17 + 64 + 7;
  std::vector<float> out(static_cast<size_t>(tokens * stride), kGuard);
  const MatrixView<float> all(out.data(), tokens, stride);
  const MatmulJob jobs[] = {{&a, all.col_range(0, 40), bias.data()},
                            {&b, all.col_range(40, 17), nullptr},
                            {&c, all.col_range(57, 64), bias.data()}};
  Matmul(GetParam(), packed, jobs, team);
  for (const MatmulJob& job : jobs) {
    std::vector<float> expected = Multiply(GetParam(), *job.weights, view, 1);
    const int64_t rows = job.weights->rows();
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        const float plain = expected[static_cast<size_t>(t * rows + r)];
        ASSERT_EQ(job.out(t, r), job.bias == nullptr ? plain : plain + job.bias[r]);
      }
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = stride - 7; i < stride; ++i) ASSERT_EQ(all(t, i), kGuard);
  }
}

TEST_P(MatmulTables, ActivationBlocksEqualTheScalarTwins) {
  std::vector<float> x = RandomFloats(64 * kActivationBlock, kSeed);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(static_cast<float>(i / 32) * 4 - 128);
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i - 16) + 0.5f;  // ties
  x[5] = 127.0f;
  std::vector<ActivationBlock> blocks(64);
  std::vector<ActivationBlock> expected(64);
  GetParam().matmul->quantize_activations(x.data(), 64 * 32, blocks.data());
  scalar::QuantizeActivations(x.data(), 64 * 32, expected.data());
  for (int b = 0; b < 64; ++b) {
    ASSERT_EQ(0, std::memcmp(&blocks[b], &expected[b], sizeof(ActivationBlock))) << "block " << b;
  }
}

TEST_P(MatmulTables, MatricesWithoutRowsOrTokensAreLeftAlone) {
  const PackedMatrix weights = RandomMatrix(DType::kQ8_0, 0, 64, kSeed);
  EXPECT_TRUE(Multiply(GetParam(), weights, {nullptr, 0, 64}, 2).empty());
}

INSTANTIATE_TEST_SUITE_P(Isa, MatmulTables, ::testing::ValuesIn(AvailableKernels()),
                         [](const auto& table) { return std::string(table.param.name); });

}  // namespace
}  // namespace quire::kernels
