// The kernels of one instruction set, chosen once at start. Everything above calls through it;
// tests call two tables and compare.
#pragma once

#include <string_view>
#include <vector>

namespace quire::kernels {

enum class Isa { kScalar, kAvx2, kAvx512, kNeon };

struct MatmulKernels;     // matmul_kernels.h
struct AttentionKernels;  // attention_kernels.h
struct VectorKernels;     // vector_kernels.h

struct KernelTable {
  Isa isa;
  std::string_view name;  // "scalar", "avx2", "avx512", "neon"
  bool tested;            // false: compiled, but never run on a machine of this project
  const MatmulKernels* matmul;
  const AttentionKernels* attention;
  const VectorKernels* vector;
};

// Each family's table for one instruction set; nullptr where the compiler could not build it.
const MatmulKernels* MatmulKernelsFor(Isa isa);
const AttentionKernels* AttentionKernelsFor(Isa isa);
const VectorKernels* VectorKernelsFor(Isa isa);

// The tables that this processor can run, slowest (scalar) first.
const std::vector<KernelTable>& AvailableKernels();

// The fastest tested table that this processor can run; QUIRE_ISA=scalar|avx2|... overrides.
const KernelTable& DefaultKernels();

}  // namespace quire::kernels
