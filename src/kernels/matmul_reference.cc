#include "kernels/matmul_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dequantize.h"
#include "kernels/matmul_kernels.h"

namespace quire::kernels {
namespace {

struct Element {
  double value;
  double tolerance;
};

// The largest error of rounding the activations of [begin, begin + 32) to int8.
double HalfStep(const float* x, int64_t begin) {
  double max = 0;
  for (int i = 0; i < kActivationBlock; ++i) {
    max = std::max(max, std::abs(static_cast<double>(x[begin + i])));
  }
  // The code is rounded from a product that carries two roundings of its own, hence the 1e-4.
  return max < kTinyActivation ? max : max / 127.0 * (0.5 + 1e-4);
}

// One row of weights as doubles, and how large the terms are that make up each value: a min may
// cancel most of scale * code, but not its rounding error.
struct ReferenceRow {
  std::vector<double> values;
  std::vector<double> magnitudes;
};

void DecodeBlocks(const PackedMatrix& weights, int64_t row, ReferenceRow& out) {
  const DTypeTraits& type = Traits(weights.type());
  const QuantTraits traits = QuantTraitsOf(weights.type());
  std::byte raw[sizeof(BlockQ6_K)];
  UnpackedBlock block;
  for (int64_t k = 0; k < weights.cols(); ++k) {
    const int i = static_cast<int>(k % type.block_elements);
    if (i == 0) {
      const int64_t offset = k / type.block_elements * type.block_bytes * kPanelRows;
      GatherRow(weights.type(), weights.panel(row / kPanelRows) + offset,
                static_cast<int>(row % kPanelRows), 1, raw);
      UnpackBlock(weights.type(), raw, block);
    }
    const int sub = i / traits.sub_block;
    const double scaled = static_cast<double>(block.scales[sub]) * (block.codes[i] - traits.offset);
    const double min = traits.mins == MinKind::kNone ? 0.0 : block.mins[sub];
    out.values[k] = scaled + min;
    out.magnitudes[k] = std::abs(scaled) + std::abs(min);
  }
}

ReferenceRow DecodeReferenceRow(const PackedMatrix& weights, int64_t row) {
  const auto cols = static_cast<size_t>(weights.cols());
  ReferenceRow out{std::vector<double>(cols), std::vector<double>(cols)};
  if (IsQuantized(weights.type())) {
    DecodeBlocks(weights, row, out);
    return out;
  }
  std::vector<float> values(cols);
  weights.DecodeRow(row, values.data());
  for (size_t k = 0; k < cols; ++k) {
    out.values[k] = values[k];
    out.magnitudes[k] = std::abs(out.values[k]);
  }
  return out;
}

Element MultiplyElement(const ReferenceRow& w, const float* x, DType type) {
  const auto cols = static_cast<int64_t>(w.values.size());
  constexpr double kEps = std::numeric_limits<float>::epsilon() / 2;
  double value = 0;
  double magnitude = 0;
  double step_error = 0;
  for (int64_t k = 0; k < cols; ++k) {
    value += w.values[k] * x[k];
    magnitude += w.magnitudes[k] * std::abs(static_cast<double>(x[k]));
  }
  if (!IsQuantized(type)) {
    return {value, static_cast<double>(cols + 2) * kEps * magnitude};
  }
  // Rounded activations are at most half a step larger than the activations themselves.
  for (int64_t begin = 0; begin < cols; begin += kActivationBlock) {
    const double half_step = HalfStep(x, begin);
    for (int i = 0; i < kActivationBlock; ++i) {
      step_error += half_step * std::abs(w.values[begin + i]);
      magnitude += half_step * w.magnitudes[begin + i];
    }
  }
  // Per sub-block two chains of three roundings at most (scale product, its fma; sum, its fma).
  const auto operations = static_cast<double>(cols / QuantTraitsOf(type).sub_block * 2 + 4);
  return {value, step_error + operations * kEps * magnitude};
}

}  // namespace

MatmulReference MultiplyReference(const PackedMatrix& weights, MatrixView<const float> x,
                                  const float* bias) {
  MatmulReference result;
  const auto rows = static_cast<size_t>(weights.rows());
  result.values.resize(static_cast<size_t>(x.rows) * rows);
  result.tolerance.resize(result.values.size());
  for (size_t r = 0; r < rows; ++r) {
    const ReferenceRow w = DecodeReferenceRow(weights, static_cast<int64_t>(r));
    for (int64_t t = 0; t < x.rows; ++t) {
      Element element = MultiplyElement(w, x.row(t), weights.type());
      if (bias != nullptr) {
        element.value += bias[r];
        element.tolerance += (std::abs(element.value) + std::abs(bias[r])) * 0x1.0p-23;
      }
      result.values[static_cast<size_t>(t) * rows + r] = element.value;
      result.tolerance[static_cast<size_t>(t) * rows + r] = element.tolerance;
    }
  }
  return result;
}

}  // namespace quire::kernels
