#include "kernels/attention_kernels.h"

#include "kernels/target.h"

namespace quire::kernels {

extern const AttentionKernels kAttentionScalar;

const AttentionKernels* AttentionKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &kAttentionScalar;
    case Isa::kAvx2:
    case Isa::kAvx512:
    case Isa::kNeon:
      return nullptr;
  }
  return nullptr;
}

}  // namespace quire::kernels
