// Attention's tables, for AttentionKernelsFor alone.
#pragma once

#include "kernels/attention_kernels.h"

namespace quire::kernels {

extern const AttentionKernels kAttentionScalar;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
extern const AttentionKernels kAttentionNeon;

}  // namespace quire::kernels
