#include "kernels/attention_kernels.h"

#include "kernels/attention_tables.h"
#include "kernels/target.h"

namespace quire::kernels {

const AttentionKernels* AttentionKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &AttentionScalar();
#ifdef QUIRE_HAVE_X86
    case Isa::kAvx2:
      return &AttentionAvx2();
    case Isa::kAvx512:
      return &AttentionAvx512();
#endif
#ifdef QUIRE_HAVE_NEON
    case Isa::kNeon:
      return &AttentionNeon();
#endif
    default:
      return nullptr;
  }
}

}  // namespace quire::kernels
