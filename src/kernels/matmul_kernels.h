// The matrix multiplication kernels of one instruction set: one panel of weights times all tokens
// of a step. Called by matmul.cc alone; everyone else calls Matmul (matmul.h).
//
// What every table computes, operation by operation, so that an output element depends on its row
// and its token only and all tables agree bit for bit:
//
//   F32, F16, BF16   y = 0; for k ascending: y = fma(w[k], x[k], y)
//   quantized        activations are rounded to int8 in blocks of 32 (QuantizeActivations); then
//                    y = 0; for each sub-block s of 16 or 32 columns, ascending:
//                      isum = sum of (code - offset) * activation code over s     (exact)
//                      y = fma(scale[s] * activation scale, float(isum), y)
//                      if the type has mins:
//                      y = fma(min[s], activation scale * activation code sum over s, y)
//   then, with a bias: y = y + bias
//
// F32 and quantized products of NaN payloads are the one exception: NaN is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/packed_matrix.h"
#include "tensor/view.h"

namespace quire::kernels {

inline constexpr int kActivationBlock = 32;

// 32 activations as integers: value i is codes[i] * scale, up to the rounding.
struct alignas(16) ActivationBlock {
  int8_t codes[kActivationBlock];  // in [-127, 127]
  float scale;
  float sum;          // of all codes; exact, as are the two below
  float half_sum[2];  // of codes [0, 16) and [16, 32)
};
static_assert(sizeof(ActivationBlock) == 48);

// One panel of weights against all tokens.
struct PanelTask {
  DType type;
  int64_t cols;
  const std::byte* panel;         // [cols / block] panel blocks, see packed_matrix.h
  MatrixView<const float> x;      // [tokens, cols]
  const ActivationBlock* blocks;  // [tokens, cols / 32]; null for float types
  int64_t blocks_stride;          // blocks from token to token
  float* out;                     // out[t * out_stride + r], r < rows; also holds partial sums
  int64_t out_stride;
  int rows;           // of the panel that exist: 1..kPanelRows
  const float* bias;  // [rows] or null
};

struct MatmulKernels {
  // blocks[0, cols / 32) = x[0, cols) rounded to nearest (even) with scale = max|x| / 127. A block
  // that holds NaN or an infinity gets the scale NaN and codes 0; one whose maximum is below
  // kTinyActivation becomes zero. cols is a multiple of 32.
  void (*quantize_activations)(const float* x, int64_t cols, ActivationBlock* blocks);

  // Indexed by DType.
  void (*panel[kDTypeCount])(const PanelTask& task);
};

// Below it 127 / max|x| would overflow; such activations cannot reach a logit.
inline constexpr float kTinyActivation = 1e-36f;

namespace scalar {
void QuantizeActivations(const float* x, int64_t cols, ActivationBlock* blocks);
void FloatPanel(const PanelTask& task);
void QuantizedPanel(const PanelTask& task);
}  // namespace scalar

// Each instruction set's table, defined where the compiler can build it.
extern const MatmulKernels kScalarMatmul;
extern const MatmulKernels kAvx2Matmul;
extern const MatmulKernels kAvx512Matmul;

}  // namespace quire::kernels
