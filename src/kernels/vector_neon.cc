#include "base/check.h"
#include "kernels/half.h"
#include "kernels/simd_math.h"
#include "kernels/simd_neon.h"
#include "kernels/vector_kernels.h"
#include "kernels/vector_tables.h"

#ifdef QUIRE_HAVE_NEON

// Last: it needs what stands above.
#include "kernels/vector_kernels_body.h"

namespace quire::kernels {
constinit const VectorKernels kVectorNeon = MakeVectorKernels<SimdNeon>();
}  // namespace quire::kernels

#endif  // QUIRE_HAVE_NEON
