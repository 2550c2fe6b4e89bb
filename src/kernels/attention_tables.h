// Attention's tables, for AttentionKernelsFor alone.
#pragma once

#include "kernels/attention_kernels.h"

namespace quire::kernels {

// The scalar kernels that read integer codes and 8-bit floats, with their encoders. Other
// instruction sets call them for head sizes that do not fill their registers.
const KvCodecKernels& ScalarQuantizedKernels(KvCodec codec);

const AttentionKernels& AttentionScalar();
const AttentionKernels& AttentionAvx2();
const AttentionKernels& AttentionAvx512();
const AttentionKernels& AttentionNeon();

}  // namespace quire::kernels
