#include "base/check.h"
#include "kernels/half.h"
#include "kernels/simd_avx2.h"
#include "kernels/vector_kernels.h"
#include "kernels/vector_tables.h"

#ifdef QUIRE_HAVE_X86

QUIRE_TARGET_BEGIN_AVX2
#include "kernels/simd_math.h"
#include "kernels/vector_kernels_body.h"
QUIRE_TARGET_END

namespace quire::kernels {
constinit const VectorKernels kVectorAvx2 = MakeVectorKernels<SimdAvx2>();
}  // namespace quire::kernels

#endif  // QUIRE_HAVE_X86
