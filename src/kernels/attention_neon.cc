#include <limits>
#include <utility>

#include "kernels/attention_kernels.h"
#include "kernels/attention_math.h"
#include "kernels/attention_tables.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_pieces.h"
#include "kernels/simd_neon.h"
#include "kernels/target.h"

#ifdef QUIRE_HAVE_NEON

// Last: it needs what stands above.
#include "kernels/attention_kernels_body.h"
#include "kernels/attention_quantized_body.h"
#include "kernels/attention_words_body.h"

namespace quire::kernels {
const AttentionKernels& AttentionNeon() {
  static const AttentionKernels kernels = MakeAttentionKernels<SimdNeon>();
  return kernels;
}
}  // namespace quire::kernels

#endif  // QUIRE_HAVE_NEON
