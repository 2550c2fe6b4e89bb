#include "kernels/kernel_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>

#include "kernels/target.h"

namespace quire::kernels {
namespace {

#ifdef QUIRE_HAVE_X86
// clang 14's __builtin_cpu_supports does not know this feature: CPUID leaf 1, ECX bit 29.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}
#endif

bool CpuSupports(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
#ifdef QUIRE_HAVE_X86
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
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
