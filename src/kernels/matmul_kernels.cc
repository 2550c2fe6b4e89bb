#include "kernels/matmul_kernels.h"

#include "kernels/target.h"

namespace quire::kernels {

const MatmulKernels* MatmulKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &kScalarMatmul;
#ifdef QUIRE_HAVE_X86
    case Isa::kAvx2:
      return &kAvx2Matmul;
#endif
    default:
      return nullptr;
  }
}

}  // namespace quire::kernels
