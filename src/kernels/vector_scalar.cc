#include "base/check.h"
#include "kernels/half.h"
#include "kernels/simd_math.h"
#include "kernels/simd_scalar.h"
#include "kernels/target.h"
#include "kernels/vector_kernels.h"
#include "kernels/vector_tables.h"

// Last: it needs what stands above.
#include "kernels/vector_kernels_body.h"

namespace quire::kernels {

constinit const VectorKernels kVectorScalar = MakeVectorKernels<SimdScalar>();

const VectorKernels* VectorKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &kVectorScalar;
#ifdef QUIRE_HAVE_X86
    case Isa::kAvx2:
      return &kVectorAvx2;
    case Isa::kAvx512:
      return &kVectorAvx512;
#endif
#ifdef QUIRE_HAVE_NEON
    case Isa::kNeon:
      return &kVectorNeon;
#endif
    default:
      return nullptr;
  }
}

}  // namespace quire::kernels
