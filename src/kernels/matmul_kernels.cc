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
    case Isa::kAvx512:
      return &kAvx512Matmul;
#endif
#ifdef QUIRE_HAVE_NEON
    case Isa::kNeon:  // the portable kernels, until this has its own
      return &kScalarMatmul;
#endif
    default:
      return nullptr;
  }
}

}  // namespace quire::kernels
