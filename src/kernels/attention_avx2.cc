#include <limits>
#include <utility>

#include "kernels/attention_kernels.h"
#include "kernels/attention_math.h"
#include "kernels/attention_tables.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_pieces.h"
#include "kernels/simd_avx2.h"
#include "kernels/target.h"

#ifdef QUIRE_HAVE_X86

QUIRE_TARGET_BEGIN_AVX2
#include "kernels/attention_kernels_body.h"
#include "kernels/attention_quantized_body.h"
#include "kernels/attention_words_body.h"
QUIRE_TARGET_END

namespace quire::kernels {
const AttentionKernels& AttentionAvx2() {
  static const AttentionKernels kernels = MakeAttentionKernels<SimdAvx2>();
  return kernels;
}
}  // namespace quire::kernels

#endif  // QUIRE_HAVE_X86
