#include "kernels/matmul_kernels.h"

namespace quire::kernels {

const MatmulKernels* MatmulKernelsFor(Isa) {
  return &kScalarMatmul;
}

}  // namespace quire::kernels
