#include "kernels/kernel_table.h"

#include <cstdlib>

#include "kernels/target.h"

namespace quire::kernels {
namespace {

bool CpuSupports(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
#ifdef QUIRE_HAVE_X86
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
#else
      return false;
#endif
    case Isa::kAvx512:
#ifdef QUIRE_HAVE_X86
      return CpuSupports(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#else
      return false;
#endif
    case Isa::kNeon:
#ifdef QUIRE_HAVE_NEON
      return true;
#else
      return false;
#endif
  }
  return false;
}

std::vector<KernelTable> MakeTables() {
  struct Named {
    Isa isa;
    std::string_view name;
    bool tested;
  };
  constexpr Named kAll[] = {{Isa::kScalar, "scalar", true},
                            {Isa::kNeon, "neon", false},
                            {Isa::kAvx2, "avx2", true},
                            {Isa::kAvx512, "avx512", false}};
  std::vector<KernelTable> tables;
  for (const Named& named : kAll) {
    if (!CpuSupports(named.isa)) continue;
    KernelTable table{named.isa,
                      named.name,
                      named.tested,
                      MatmulKernelsFor(named.isa),
                      AttentionKernelsFor(named.isa),
                      VectorKernelsFor(named.isa)};
    if (table.matmul == nullptr || table.attention == nullptr || table.vector == nullptr) continue;
    tables.push_back(table);
  }
  return tables;
}

}  // namespace

const std::vector<KernelTable>& AvailableKernels() {
  static const std::vector<KernelTable> tables = MakeTables();
  return tables;
}

const KernelTable& DefaultKernels() {
  static const KernelTable& chosen = []() -> const KernelTable& {
    const std::vector<KernelTable>& tables = AvailableKernels();
    const char* wanted = std::getenv("QUIRE_ISA");
    const KernelTable* best = &tables.front();
    for (const KernelTable& table : tables) {
      if (wanted != nullptr && table.name == wanted) return table;
      if (table.tested) best = &table;
    }
    return *best;
  }();
  return chosen;
}

}  // namespace quire::kernels
