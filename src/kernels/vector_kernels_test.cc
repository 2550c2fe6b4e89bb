#include "kernels/vector_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "kernels/target.h"

namespace quire::kernels {
namespace {

constexpr double kEps = 0x1.0p-24;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGuard = 12345.0f;  // stands behind every row and must stay

std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= 70; ++n) lengths.push_back(n);
  for (int64_t n : {127, 128, 129, 255, 896, 1003, 4864}) lengths.push_back(n);
  return lengths;
}

// A matrix with a guard value behind every row.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols)
      : rows_(rows), cols_(cols), values_(static_cast<size_t>(rows * (cols + 3)), kGuard) {}

  static Matrix Random(int64_t rows, int64_t cols, double scale, uint64_t seed) {
    Matrix m(rows, cols);
    base::CounterRng rng(seed, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        m(r, c) = static_cast<float>((2.0 * rng.NextUnit() - 1.0) * scale);
      }
    }
    return m;
  }

  float& operator()(int64_t r, int64_t c) { return values_[static_cast<size_t>(r * stride() + c)]; }
  float operator()(int64_t r, int64_t c) const {
    return values_[static_cast<size_t>(r * stride() + c)];
  }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return cols_ + 3; }
  MatrixView<float> view() { return {values_.data(), rows_, cols_, stride()}; }
  MatrixView<const float> view() const { return {values_.data(), rows_, cols_, stride()}; }

  bool GuardsHold() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = cols_; c < stride(); ++c) {
        if (values_[static_cast<size_t>(r * stride() + c)] != kGuard) return false;
      }
    }
    return true;
  }

 private:
  int64_t rows_;
  int64_t cols_;
  std::vector<float> values_;
};

::testing::AssertionResult SameBits(const Matrix& a, const Matrix& b) {
  for (int64_t r = 0; r < a.rows(); ++r) {
    for (int64_t c = 0; c < a.cols(); ++c) {
      if (std::isnan(a(r, c)) && std::isnan(b(r, c))) continue;
      if (std::bit_cast<uint32_t>(a(r, c)) != std::bit_cast<uint32_t>(b(r, c))) {
        return ::testing::AssertionFailure() << "at (" << r << ", " << c << ") of " << a.cols()
                                             << ": " << a(r, c) << " and " << b(r, c);
      }
    }
  }
  return ::testing::AssertionSuccess();
}

// Every kernel once on matrices of this width, with each of the values that break careless code.
std::vector<Matrix> RunEverything(const VectorKernels& k, int64_t cols, double scale) {
  Matrix x = Matrix::Random(3, cols, scale, 1);
  Matrix y = Matrix::Random(3, cols, scale, 2);
  const float odd[] = {0.0f,   -0.0f,  kInf,    -kInf, kNan,  3e38f,
                       -3e38f, 1e-40f, -1e-45f, 90.0f, -95.0f};
  for (size_t i = 0; i < std::size(odd) && static_cast<int64_t>(i) < cols; ++i) {
    x(2, static_cast<int64_t>(i)) = odd[i];
  }
  std::vector<Matrix> out;
  out.emplace_back(3, cols);
  k.rms_norm(x.view(), &y(0, 0), 1e-5f, out.back().view());
  out.emplace_back(3, cols);
  k.silu_mul(x.view(), y.view(), out.back().view());
  out.emplace_back(3, cols);
  k.gelu_tanh_mul(x.view(), y.view(), out.back().view());
  auto in_place = [&](auto run) {
    out.push_back(x);
    run(out.back().view());
  };
  in_place([&](MatrixView<float> m) { k.rms_norm_heads(m, &y(1, 0), cols, 1e-6f); });
  in_place([&](MatrixView<float> m) { k.softcap(m, 30.0f); });
  in_place([&](MatrixView<float> m) { k.add(m, y.view()); });
  in_place([&](MatrixView<float> m) { k.scale(m, 1.7f); });
  in_place([&](MatrixView<float> m) { k.softmax(m); });
  in_place([&](MatrixView<float> m) { k.exp(m); });
  in_place([&](MatrixView<float> m) { k.tanh(m); });
  Matrix cos = Matrix::Random(3, cols / 2, 1.0, 3);
  Matrix sin = Matrix::Random(3, cols / 2, 1.0, 4);
  RopeRows rows{cos.view(), sin.view(), cols};
  in_place([&](MatrixView<float> m) { k.rope_halves(m, rows); });
  in_place([&](MatrixView<float> m) { k.rope_adjacent(m, rows); });
  return out;
}

TEST(VectorKernels, EverySetEqualsTheScalarTwinBitForBit) {
  for (const KernelTable& table : AvailableKernels()) {
    for (int64_t cols : Lengths()) {
      for (double scale : {1.0, 20.0, 1e-3}) {
        std::vector<Matrix> expected = RunEverything(*AvailableKernels()[0].vector, cols, scale);
        std::vector<Matrix> got = RunEverything(*table.vector, cols, scale);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_TRUE(SameBits(got[i], expected[i])) << table.name << ", kernel " << i;
          ASSERT_TRUE(got[i].GuardsHold()) << table.name << ", kernel " << i;
        }
      }
    }
  }
}

// All terms of the sum are positive: its relative error is at most the longest chain of roundings.
TEST(VectorKernels, RmsNormIsWithinItsSummationBound) {
  for (const KernelTable& table : AvailableKernels()) {
    for (int64_t cols : Lengths()) {
      Matrix x = Matrix::Random(2, cols, 3.0, 5);
      Matrix w = Matrix::Random(1, cols, 1.0, 6);
      Matrix out(2, cols);
      table.vector->rms_norm(x.view(), &w(0, 0), 1e-5f, out.view());
      double bound = (0.5 * (static_cast<double>(cols) / 32 + 1 + 5 + 2) + 5) * kEps;
      for (int64_t r = 0; r < 2; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < cols; ++c) sum += static_cast<double>(x(r, c)) * x(r, c);
        double inverse = 1 / std::sqrt(sum / static_cast<double>(cols) + 1e-5f);
        for (int64_t c = 0; c < cols; ++c) {
          double expected = x(r, c) * inverse * w(0, c);
          ASSERT_NEAR(out(r, c), expected, bound * std::fabs(expected)) << table.name << cols;
        }
      }
    }
  }
}

TEST(VectorKernels, RmsNormOfHeadsIsRmsNormOfEachHead) {
  for (const KernelTable& table : AvailableKernels()) {
    for (int64_t head_dim : {8, 64, 80, 128}) {
      Matrix x = Matrix::Random(3, 5 * head_dim, 2.0, 7);
      Matrix w = Matrix::Random(1, head_dim, 1.0, 8);
      Matrix expected(3, 5 * head_dim);
      for (int64_t h = 0; h < 5; ++h) {
        table.vector->rms_norm(x.view().col_range(h * head_dim, head_dim), &w(0, 0), 1e-6f,
                               expected.view().col_range(h * head_dim, head_dim));
      }
      table.vector->rms_norm_heads(x.view(), &w(0, 0), head_dim, 1e-6f);
      EXPECT_TRUE(SameBits(x, expected)) << table.name;
    }
  }
}

TEST(VectorKernels, RowsDoNotDependOnTheirNumber) {
  for (const KernelTable& table : AvailableKernels()) {
    Matrix many = Matrix::Random(17, 77, 4.0, 9);
    Matrix w = Matrix::Random(1, 77, 1.0, 10);
    Matrix whole(17, 77);
    Matrix alone(17, 77);
    table.vector->rms_norm(many.view(), &w(0, 0), 1e-5f, whole.view());
    for (int64_t r = 0; r < 17; ++r) {
      table.vector->rms_norm(many.view().row_range(r, 1), &w(0, 0), 1e-5f,
                             alone.view().row_range(r, 1));
    }
    EXPECT_TRUE(SameBits(whole, alone)) << table.name;
  }
}

struct RopeCase {
  int64_t heads;
  int64_t head_dim;
  int64_t dims;
};

void CheckRope(const KernelTable& table, const RopeCase& c) {
  Matrix x = Matrix::Random(4, c.heads * c.head_dim, 2.0, 11);
  Matrix cos(4, c.dims / 2);
  Matrix sin(4, c.dims / 2);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t i = 0; i < c.dims / 2; ++i) {
      double angle = static_cast<double>(r * 1000 + 3) *
                     std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(c.dims));
      cos(r, i) = static_cast<float>(std::cos(angle));
      sin(r, i) = static_cast<float>(std::sin(angle));
    }
  }
  for (bool halves : {true, false}) {
    Matrix out = x;
    RopeRows rows{cos.view(), sin.view(), c.head_dim};
    (halves ? table.vector->rope_halves : table.vector->rope_adjacent)(out.view(), rows);
    ASSERT_TRUE(out.GuardsHold());
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t h = 0; h < c.heads; ++h) {
        int64_t at = h * c.head_dim;
        for (int64_t i = 0; i < c.dims / 2; ++i) {
          int64_t ia = at + (halves ? i : 2 * i);
          int64_t ib = at + (halves ? i + c.dims / 2 : 2 * i + 1);
          double a = x(r, ia), b = x(r, ib), cs = cos(r, i), sn = sin(r, i);
          double bound_a = 2 * kEps * (std::fabs(a * cs) + std::fabs(b * sn));
          double bound_b = 2 * kEps * (std::fabs(b * cs) + std::fabs(a * sn));
          ASSERT_NEAR(out(r, ia), a * cs - b * sn, bound_a) << table.name << " " << halves;
          ASSERT_NEAR(out(r, ib), b * cs + a * sn, bound_b) << table.name << " " << halves;
        }
        for (int64_t d = c.dims; d < c.head_dim; ++d) {
          ASSERT_EQ(out(r, at + d), x(r, at + d)) << "unrotated channel " << d;
        }
      }
    }
  }
}

TEST(VectorKernels, RopeRotatesEachPairAndLeavesTheRest) {
  const RopeCase kCases[] = {{1, 2, 2},    {3, 64, 64},  {2, 80, 80},   {5, 96, 72},
                             {4, 128, 64}, {7, 112, 54}, {2, 256, 256}, {3, 20, 18}};
  for (const KernelTable& table : AvailableKernels()) {
    for (const RopeCase& c : kCases) CheckRope(table, c);
  }
}

TEST(VectorKernels, SiluAndGeluAreWithinTheirBounds) {
  for (const KernelTable& table : AvailableKernels()) {
    for (double scale : {0.01, 1.0, 12.0, 80.0}) {
      Matrix gate = Matrix::Random(4, 1003, scale, 12);
      Matrix up = Matrix::Random(4, 1003, 2.0, 13);
      Matrix silu(4, 1003);
      Matrix gelu(4, 1003);
      table.vector->silu_mul(gate.view(), up.view(), silu.view());
      table.vector->gelu_tanh_mul(gate.view(), up.view(), gelu.view());
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t c = 0; c < 1003; ++c) {
          double g = gate(r, c), u = up(r, c);
          double expected = g / (1 + std::exp(-g)) * u;
          // f32 has no normal numbers below 2^-126: there the product is as exact as they are.
          ASSERT_NEAR(silu(r, c), expected, 8 * kEps * std::fabs(expected) + 0x1.0p-126)
              << table.name << " gate " << g;
          double t = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
          ASSERT_NEAR(gelu(r, c), 0.5 * g * (1 + std::tanh(t)) * u, 0x1p-10 * std::fabs(g * u))
              << table.name << " gate " << g;
        }
      }
    }
  }
}

TEST(VectorKernels, SiluOfLargeGatesIsTheGateOrZero) {
  for (const KernelTable& table : AvailableKernels()) {
    Matrix gate(1, 4);
    Matrix up(1, 4);
    gate(0, 0) = 1e30f, gate(0, 1) = -1e30f, gate(0, 2) = kInf, gate(0, 3) = -kInf;
    for (int64_t i = 0; i < 4; ++i) up(0, i) = 1.0f;
    Matrix out(1, 4);
    table.vector->silu_mul(gate.view(), up.view(), out.view());
    EXPECT_EQ(out(0, 0), 1e30f);
    EXPECT_EQ(out(0, 1), 0.0f);
    EXPECT_EQ(out(0, 2), kInf);
    EXPECT_TRUE(std::isnan(out(0, 3)));
  }
}

TEST(VectorKernels, ExpAndTanhAreWithinTheirStatedErrors) {
  for (const KernelTable& table : AvailableKernels()) {
    for (double scale : {0.3, 3.0, 86.0}) {
      Matrix x = Matrix::Random(20, 1003, scale, 14);
      Matrix e = x;
      Matrix t = x;
      Matrix capped = x;
      table.vector->exp(e.view());
      table.vector->tanh(t.view());
      table.vector->softcap(capped.view(), 30.0f);
      for (int64_t r = 0; r < 20; ++r) {
        for (int64_t c = 0; c < 1003; ++c) {
          double v = x(r, c);
          ASSERT_NEAR(e(r, c), std::exp(v), 2 * kEps * std::exp(v)) << table.name << " exp " << v;
          double exact = std::tanh(v);
          ASSERT_NEAR(t(r, c), exact, 6 * kEps * std::fabs(exact)) << table.name << " tanh " << v;
          double cap = 30 * std::tanh(v / 30);
          ASSERT_NEAR(capped(r, c), cap, 8 * kEps * std::fabs(cap)) << table.name << " cap " << v;
        }
      }
    }
  }
}

TEST(VectorKernels, ExpFadesThroughDenormalsAndOverflowsToInfinity) {
  for (const KernelTable& table : AvailableKernels()) {
    Matrix x(1, 8);
    const float in[] = {0.0f, -0.0f, -kInf, kInf, 88.8f, -104.5f, kNan, 88.7f};
    for (int64_t i = 0; i < 8; ++i) x(0, i) = in[i];
    table.vector->exp(x.view());
    EXPECT_EQ(x(0, 0), 1.0f);
    EXPECT_EQ(x(0, 1), 1.0f);
    EXPECT_EQ(x(0, 2), 0.0f);
    EXPECT_EQ(x(0, 3), kInf);
    EXPECT_EQ(x(0, 4), kInf);
    EXPECT_EQ(x(0, 5), 0.0f);
    EXPECT_TRUE(std::isnan(x(0, 6)));
    EXPECT_NEAR(x(0, 7), std::exp(88.7), 2 * kEps * std::exp(88.7) + 88.7 * kEps * 3e38);
    Matrix small(1, 160);
    for (int64_t i = 0; i < 160; ++i) small(0, i) = -87.0f - 0.1f * static_cast<float>(i);
    Matrix e = small;
    table.vector->exp(e.view());
    for (int64_t i = 0; i < 160; ++i) {
      double exact = std::exp(static_cast<double>(small(0, i)));
      EXPECT_NEAR(e(0, i), exact, 2 * kEps * exact + 0x1.0p-149) << table.name << small(0, i);
    }
  }
}

TEST(VectorKernels, SoftmaxMatchesTheDoubleReference) {
  for (const KernelTable& table : AvailableKernels()) {
    for (int64_t cols : Lengths()) {
      for (double scale : {1.0, 40.0}) {
        Matrix x = Matrix::Random(2, cols, scale, 15);
        Matrix p = x;
        table.vector->softmax(p.view());
        for (int64_t r = 0; r < 2; ++r) {
          double max = -1e300, sum = 0;
          for (int64_t c = 0; c < cols; ++c) max = std::max<double>(max, x(r, c));
          for (int64_t c = 0; c < cols; ++c) sum += std::exp(x(r, c) - max);
          // Rounding x - max costs |x - max| eps, in this term and (weighted) in the sum.
          double chain = static_cast<double>(cols) / 32 + 12 + 2 * (2 * scale);
          for (int64_t c = 0; c < cols; ++c) {
            double exact = std::exp(x(r, c) - max) / sum;
            ASSERT_NEAR(p(r, c), exact, chain * kEps * exact + 0x1.0p-126) << table.name << cols;
          }
        }
      }
    }
  }
}

TEST(VectorKernels, SoftmaxOfMaskedRowsIsDefined) {
  for (const KernelTable& table : AvailableKernels()) {
    Matrix x(4, 41);
    for (int64_t c = 0; c < 41; ++c) {
      x(0, c) = c == 37 ? -5.0f : -kInf;
      x(1, c) = -kInf;
      x(2, c) = c == 3 ? kNan : 1.0f;
      x(3, c) = 1.0f;
    }
    table.vector->softmax(x.view());
    for (int64_t c = 0; c < 41; ++c) {
      EXPECT_EQ(x(0, c), c == 37 ? 1.0f : 0.0f);
      EXPECT_TRUE(std::isnan(x(1, c)));
      EXPECT_TRUE(std::isnan(x(2, c)));
      EXPECT_NEAR(x(3, c), 1.0 / 41, 4 * kEps / 41);  // the row below a NaN is untouched by it
    }
  }
}

TEST(VectorKernels, RowMaxFindsTheLowestIndexOfTheGreatest) {
  for (const KernelTable& table : AvailableKernels()) {
    for (int64_t n : Lengths()) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        base::CounterRng rng(seed, 16, static_cast<uint64_t>(n));
        std::vector<float> x(static_cast<size_t>(n));
        // Few distinct values: ties are common.
        for (float& v : x) v = static_cast<float>(rng.NextBelow(5)) - 7.0f;
        auto expected = std::max_element(x.begin(), x.end());
        RowMax found = table.vector->row_max(x.data(), n);
        ASSERT_EQ(found.index, expected - x.begin()) << table.name << " length " << n;
        ASSERT_EQ(found.value, *expected);
        ASSERT_FALSE(found.has_nan);
        size_t at = rng.NextBelow(static_cast<uint64_t>(n));
        x[at] = kNan;
        ASSERT_TRUE(table.vector->row_max(x.data(), n).has_nan) << table.name << " " << at;
      }
    }
  }
}

TEST(VectorKernels, RowMaxHandlesInfinitiesAndNans) {
  for (const KernelTable& table : AvailableKernels()) {
    std::vector<float> x(37, -kInf);
    EXPECT_EQ(table.vector->row_max(x.data(), 37).index, 0);
    EXPECT_EQ(table.vector->row_max(x.data(), 37).value, -kInf);
    x[33] = -3e38f;
    EXPECT_EQ(table.vector->row_max(x.data(), 37).index, 33);
    x[5] = kNan;
    x[36] = kInf;
    RowMax found = table.vector->row_max(x.data(), 37);
    EXPECT_EQ(found.index, 36);
    EXPECT_TRUE(found.has_nan);
    std::vector<float> nothing(11, kNan);
    found = table.vector->row_max(nothing.data(), 11);
    EXPECT_EQ(found.value, -kInf);
    EXPECT_TRUE(found.has_nan);
  }
}

TEST(Half, EveryF16SurvivesTheRoundTripAndMidpointsGoToEven) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {  // finite, not negative
    float value = F32FromF16(static_cast<uint16_t>(h));
    ASSERT_EQ(F16FromF32(value), h);
    ASSERT_EQ(F16FromF32(-value), h | 0x8000);
    double exact = (h >> 10) == 0
                       ? h * 0x1.0p-24
                       : std::ldexp(1024.0 + (h & 0x3ff), static_cast<int>(h >> 10) - 25);
    ASSERT_EQ(value, exact);
    float next = h == 0x7bff ? 65536.0f : F32FromF16(static_cast<uint16_t>(h + 1));
    float middle = value + (next - value) / 2;  // exact: f32 has 13 more bits
    ASSERT_EQ(F16FromF32(middle), h % 2 == 0 ? h : h + 1) << h;
    ASSERT_EQ(F16FromF32(std::nextafter(middle, 0.0f)), h) << h;
    ASSERT_EQ(F16FromF32(std::nextafter(middle, kInf)), h + 1) << h;
  }
  EXPECT_EQ(F16FromF32(1e30f), 0x7c00);
  EXPECT_EQ(F16FromF32(-kInf), 0xfc00);
  EXPECT_TRUE(std::isnan(F32FromF16(F16FromF32(kNan))));
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(Bf16FromF32(1.0f), 0x3f80);
  EXPECT_EQ(Bf16FromF32(1.0f + 0x1.0p-8f), 0x3f80);  // a tie goes to even
  EXPECT_EQ(Bf16FromF32(1.0f + 0x3.0p-8f), 0x3f82);  // and here even is above
  EXPECT_EQ(Bf16FromF32(std::nextafter(1.0f + 0x1.0p-8f, 2.0f)), 0x3f81);
  EXPECT_EQ(Bf16FromF32(3.4e38f), 0x7f80);
  EXPECT_TRUE(std::isnan(F32FromBf16(Bf16FromF32(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Half, RowsOfEverySetEqualSingleValues) {
  base::CounterRng rng(17, 0, 0);
  const int64_t n = 100003;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(rng.NextU64()));
  // Half of them where f16 has its numbers, so that denormals and overflow are met.
  for (size_t i = 0; i < x.size(); i += 2) {
    x[i] = std::ldexp(static_cast<float>(rng.NextUnit() - 0.5), static_cast<int>(i % 45) - 28);
  }
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const KernelTable& table : AvailableKernels()) {
    std::vector<uint16_t> half(x.size());
    table.vector->f32_to_f16({x.data(), 1, n}, {half.data(), 1, n});
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(half[i], F16FromF32(x[i])) << table.name << x[i];
    table.vector->f32_to_bf16({x.data(), 1, n}, {half.data(), 1, n});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(half[i], Bf16FromF32(x[i])) << table.name << x[i];
    }
    std::vector<float> wide(all.size());
    auto bits = [](float v) { return std::bit_cast<uint32_t>(v); };
    table.vector->f16_to_f32({all.data(), 256, 256}, {wide.data(), 256, 256});
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits(wide[i]), bits(F32FromF16(all[i])));
    table.vector->bf16_to_f32({all.data(), 64, 1024}, {wide.data(), 64, 1024});
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits(wide[i]), bits(F32FromBf16(all[i])));
  }
}

}  // namespace
}  // namespace quire::kernels
