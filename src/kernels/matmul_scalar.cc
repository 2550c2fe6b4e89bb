// The scalar twin: the definition in matmul_kernels.h, written down as plainly as it goes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/dequantize.h"
#include "kernels/matmul_kernels.h"

namespace quire::kernels {
namespace {

void QuantizeBlock(const float* x, ActivationBlock& block) {
  // Magnitudes compare as integers, and NaN is above infinity.
  uint32_t max_bits = 0;
  for (int i = 0; i < kActivationBlock; ++i) {
    max_bits = std::max(max_bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  block = {};
  if (max_bits >= 0x7f800000u) {
    block.scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const float max = std::bit_cast<float>(max_bits);
  if (max < kTinyActivation) return;
  block.scale = max / 127.0f;
  const float inverse = 127.0f / max;
  int sums[2] = {0, 0};
  for (int i = 0; i < kActivationBlock; ++i) {
    block.codes[i] = static_cast<int8_t>(std::nearbyintf(x[i] * inverse));
    sums[i / 16] += block.codes[i];
  }
  block.half_sum[0] = static_cast<float>(sums[0]);
  block.half_sum[1] = static_cast<float>(sums[1]);
  block.sum = static_cast<float>(sums[0] + sums[1]);
}

// y continued over one block of weights and its activations.
float MultiplyBlock(const UnpackedBlock& w, const QuantTraits& traits, int columns,
                    const ActivationBlock* x, float y) {
  for (int begin = 0; begin < columns; begin += traits.sub_block) {
    const int sub = begin / traits.sub_block;
    const ActivationBlock& block = x[begin / kActivationBlock];
    const int first = begin % kActivationBlock;
    int isum = 0;
    int xsum = 0;
    for (int i = 0; i < traits.sub_block; ++i) {
      isum += (w.codes[begin + i] - traits.offset) * block.codes[first + i];
      xsum += block.codes[first + i];
    }
    y = std::fma(w.scales[sub] * block.scale, static_cast<float>(isum), y);
    if (traits.mins == MinKind::kPerSubBlock) {
      y = std::fma(w.mins[sub], block.scale * static_cast<float>(xsum), y);
    }
  }
  return y;
}

void AddBias(const PanelTask& task) {
  if (task.bias == nullptr) return;
  for (int64_t t = 0; t < task.x.rows; ++t) {
    for (int r = 0; r < task.rows; ++r) task.out[t * task.out_stride + r] += task.bias[r];
  }
}

void ClearOut(const PanelTask& task) {
  for (int64_t t = 0; t < task.x.rows; ++t) {
    std::fill_n(task.out + t * task.out_stride, task.rows, 0.0f);
  }
}

}  // namespace

namespace scalar {

void QuantizeActivations(const float* x, int64_t cols, ActivationBlock* blocks) {
  for (int64_t b = 0; b < cols / kActivationBlock; ++b) {
    QuantizeBlock(x + b * kActivationBlock, blocks[b]);
  }
}

void FloatPanel(const PanelTask& task) {
  constexpr int64_t kPiece = 64;
  std::byte raw[kPiece * sizeof(float)];
  float w[kPiece];
  const int element = Traits(task.type).block_bytes;
  ClearOut(task);
  for (int lane = 0; lane < task.rows; ++lane) {
    for (int64_t k = 0; k < task.cols; k += kPiece) {
      const int64_t count = std::min(kPiece, task.cols - k);
      GatherRow(task.type, task.panel + k * element * kPanelRows, lane, count, raw);
      DequantizeRow(task.type, raw, count, w);
      for (int64_t t = 0; t < task.x.rows; ++t) {
        const float* x = task.x.row(t) + k;
        float& y = task.out[t * task.out_stride + lane];
        for (int64_t i = 0; i < count; ++i) y = std::fma(w[i], x[i], y);
      }
    }
  }
  AddBias(task);
}

void QuantizedPanel(const PanelTask& task) {
  const DTypeTraits& type = Traits(task.type);
  const QuantTraits traits = QuantTraitsOf(task.type);
  std::byte raw[sizeof(BlockQ6_K)];
  UnpackedBlock w;
  ClearOut(task);
  for (int lane = 0; lane < task.rows; ++lane) {
    for (int64_t b = 0; b < task.cols / type.block_elements; ++b) {
      GatherRow(task.type, task.panel + b * type.block_bytes * kPanelRows, lane, 1, raw);
      UnpackBlock(task.type, raw, w);
      const ActivationBlock* x = task.blocks + b * type.block_elements / kActivationBlock;
      for (int64_t t = 0; t < task.x.rows; ++t) {
        float& y = task.out[t * task.out_stride + lane];
        y = MultiplyBlock(w, traits, type.block_elements, x + t * task.blocks_stride, y);
      }
    }
  }
  AddBias(task);
}

}  // namespace scalar

const MatmulKernels kScalarMatmul = {
    scalar::QuantizeActivations,
    {scalar::FloatPanel, scalar::FloatPanel, scalar::FloatPanel, scalar::QuantizedPanel,
     scalar::QuantizedPanel, scalar::QuantizedPanel, scalar::QuantizedPanel, scalar::QuantizedPanel,
     scalar::QuantizedPanel, scalar::QuantizedPanel, scalar::QuantizedPanel, scalar::QuantizedPanel,
     scalar::QuantizedPanel, scalar::QuantizedPanel}};

}  // namespace quire::kernels
