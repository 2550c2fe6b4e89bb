// Matrix multiplication of a forward pass: out[t, r] = sum over k of x[t, k] * weights[r, k] +
// bias.
//
// A layer calls PackedActivations::Set once per input and Matmul once for all matrices that read
// that input (query, key and value; gate and up), which then share one parallel region. Nothing
// here allocates after construction. An output element depends on its token's activations and its
// row's weights only: not on the other tokens, the number of threads or the chunking (DESIGN:
// numbers that do not move; the order of operations is in matmul_kernels.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "kernels/packed_matrix.h"
#include "tensor/buffer.h"
#include "tensor/view.h"

namespace quire::kernels {

struct ActivationBlock;

// What the weights that will read an input ask of it.
enum class ActivationForm {
  kFloat,      // F32, F16 and BF16 weights only
  kQuantized,  // any weights
};
ActivationForm ActivationFormFor(DType weights);
ActivationForm ActivationFormFor(std::span<const PackedMatrix* const> weights);

// The input of a matrix multiplication in the forms that kernels read. Owns the quantized copy;
// the f32 values are borrowed and must outlive the Matmul calls.
class PackedActivations {
 public:
  PackedActivations(int64_t max_tokens, int64_t max_cols);

  // x: [tokens, cols], at most what was given at construction. A form of kQuantized needs cols to
  // be a multiple of 32.
  void Set(const KernelTable& kernels, MatrixView<const float> x, ActivationForm form,
           base::ThreadTeam& team);

  int64_t tokens() const { return x_.rows; }
  int64_t cols() const { return x_.cols; }
  size_t bytes() const { return blocks_.bytes(); }
  MatrixView<const float> values() const { return x_; }
  // [tokens, cols / 32], or null where Set was not asked for it.
  const ActivationBlock* blocks() const;

 private:
  int64_t max_tokens_;
  int64_t max_cols_;
  MatrixView<const float> x_;
  ActivationForm form_ = ActivationForm::kFloat;
  Buffer blocks_;
};

struct MatmulJob {
  const PackedMatrix* weights;  // [rows, cols]
  MatrixView<float> out;        // [tokens, rows], any stride
  const float* bias = nullptr;  // [rows] or null
};

// Runs all jobs over the one input; their outputs must not overlap each other or the input.
void Matmul(const KernelTable& kernels, const PackedActivations& x, std::span<const MatmulJob> jobs,
            base::ThreadTeam& team);

}  // namespace quire::kernels
