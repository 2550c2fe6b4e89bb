// Matrix multiplication for AVX-512 with VNNI. Compiled, but no machine of this project can run it.
#include "kernels/target.h"

#ifdef QUIRE_HAVE_X86

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/matmul_kernels.h"
#include "kernels/quant_blocks.h"

QUIRE_TARGET_BEGIN_AVX512
#define QUIRE_MATMUL_NAMESPACE avx512

// In the order of use.
// clang-format off
#include "kernels/matmul_x86_decode.h"
#include "kernels/matmul_x86_tile.h"
#include "kernels/matmul_avx512_tile.h"
#include "kernels/matmul_x86_body.h"
// clang-format on

QUIRE_TARGET_END

namespace quire::kernels {
constinit const MatmulKernels kAvx512Matmul = avx512::MakeMatmulKernels();
}  // namespace quire::kernels

#endif  // QUIRE_HAVE_X86
