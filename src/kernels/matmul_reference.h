// Matrix multiplication in double precision over dequantized weights: what tests measure every
// kernel against, with the error that a correct kernel may have.
#pragma once

#include <vector>

#include "kernels/packed_matrix.h"
#include "tensor/view.h"

namespace quire::kernels {

struct MatmulReference {
  std::vector<double> values;     // [tokens, rows]
  std::vector<double> tolerance;  // [tokens, rows]: |kernel - value| is at most this
};

// out = x * weights^T + bias (null: none). The tolerance is derived, not tuned:
//   rounding      (operations + 2) * eps * sum|a*b|, one operation per fused step of the chain
//   quantization  half a step of each block's activation scale times sum|w| over the block
MatmulReference MultiplyReference(const PackedMatrix& weights, MatrixView<const float> x,
                                  const float* bias);

}  // namespace quire::kernels
