// Vector kernels: everything of a forward pass that is neither a matrix product nor attention.
//
// Free functions over views, one table per instruction set (kernel_table.h). They allocate nothing,
// start no threads and keep no state; callers divide rows or columns among threads with row_range
// and col_range. Rows are independent: a row's result never depends on how many rows a call has.
//
// Every sum runs in 32 partial sums (element i in sum i % 32, then halves are added), so all
// instruction sets agree bit for bit, NaN payloads excepted. Unless a function says otherwise, inf
// and NaN behave as in the formula under IEEE arithmetic: NaN in, NaN out, for that row at most.
// Stated errors are relative to the exact value of the formula; eps = 2^-24.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "tensor/view.h"

namespace quire::kernels {

// The rotation of each row of a batch, computed once per step. Rotated channels of a head are
// dims = 2 * cos.cols <= head_dim; the channels behind them stay as they are.
struct RopeRows {
  MatrixView<const float> cos;  // [rows, dims / 2]
  MatrixView<const float> sin;  // [rows, dims / 2]
  int64_t head_dim = 0;
};

// The greatest value of a row that is no NaN, at its lowest index.
struct RowMax {
  int64_t index = 0;
  float value = 0.0f;    // -inf where the row has nothing but NaN
  bool has_nan = false;  // somewhere in the row
};

struct VectorKernels {
  // out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight (1910.07467). `out` may be `x`. A sum of
  // squares beyond f32 (|x| > 1e18) gives zeros.
  void (*rms_norm)(MatrixView<const float> x, const float* weight /*[cols]*/, float eps,
                   MatrixView<float> out);
  // The same on each head of rows [heads * head_dim], in place (q/k norm).
  void (*rms_norm_heads)(MatrixView<float> x, const float* weight /*[head_dim]*/, int64_t head_dim,
                         float eps);

  // Rotary embedding (2104.09864) in place on rows [heads * head_dim]: each pair (a, b) becomes
  // (a cos - b sin, b cos + a sin). Pairs are (i, i + dims/2) or (2i, 2i + 1).
  void (*rope_halves)(MatrixView<float> x, const RopeRows& rows);
  void (*rope_adjacent)(MatrixView<float> x, const RopeRows& rows);

  // out = gate * sigmoid(gate) * up. `out` may be `gate` or `up`. Error 8 eps; a gate below -87.5
  // may give zero, -inf gives NaN.
  void (*silu_mul)(MatrixView<const float> gate, MatrixView<const float> up, MatrixView<float> out);
  // out = gelu(gate) * up in the tanh form: gate * sigmoid(2 u), u = sqrt(2/pi) (gate + 0.044715
  // gate^3), which is gate/2 (1 + tanh u) without its cancellation. Gate and gelu are rounded to
  // the precision of binary16 (11 bits): absolute error of the GELU 2^-10 |gate|. An infinite gate
  // gives NaN.
  void (*gelu_tanh_mul)(MatrixView<const float> gate, MatrixView<const float> up,
                        MatrixView<float> out);
  // x = cap * tanh(x / cap), in place. Error 8 eps.
  void (*softcap)(MatrixView<float> x, float cap);

  void (*add)(MatrixView<float> x, MatrixView<const float> y);  // x += y
  void (*scale)(MatrixView<float> x, float factor);             // x *= factor

  // Each row becomes exp(x - max) / sum exp(x - max). A row of -inf alone, or with +inf or NaN,
  // becomes NaN.
  void (*softmax)(MatrixView<float> x);

  RowMax (*row_max)(const float* x, int64_t count);  // count >= 1

  // Round to nearest even; overflow becomes infinity; NaN stays NaN (half.h).
  void (*f32_to_f16)(MatrixView<const float> x, MatrixView<uint16_t> out);
  void (*f16_to_f32)(MatrixView<const uint16_t> x, MatrixView<float> out);
  void (*f32_to_bf16)(MatrixView<const float> x, MatrixView<uint16_t> out);
  void (*bf16_to_f32)(MatrixView<const uint16_t> x, MatrixView<float> out);

  // In place. Errors 2 eps (exp, where the result is normal) and 6 eps (tanh).
  void (*exp)(MatrixView<float> x);
  void (*tanh)(MatrixView<float> x);
};

}  // namespace quire::kernels
