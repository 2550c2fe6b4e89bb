// Bytes moved per second of each vector kernel, per instruction set, on rows that stay in the
// cache.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/target.h"
#include "kernels/vector_kernels.h"

namespace quire::kernels {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kCols = 4096;

struct Operands {
  std::vector<float> a = std::vector<float>(kRows * kCols, 0.5f);
  std::vector<float> b = std::vector<float>(kRows * kCols, 0.25f);
  std::vector<float> out = std::vector<float>(kRows * kCols);
  std::vector<uint16_t> half = std::vector<uint16_t>(kRows * kCols);
  MatrixView<float> view(std::vector<float>& v) { return {v.data(), kRows, kCols}; }
};

template <typename Body>
void Register(const std::string& name, Isa isa, int64_t bytes_per_value, Body body) {
  const VectorKernels* kernels = VectorKernelsFor(isa);
  std::string full = name + (isa == Isa::kScalar ? "/scalar" : "/avx2");
  benchmark::RegisterBenchmark(full.c_str(), [=](benchmark::State& state) {
    Operands operands;
    for (auto _ : state) {
      body(*kernels, operands);
      benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * kRows * kCols * bytes_per_value);
  });
}

void RegisterAll(Isa isa) {
  Register("rms_norm", isa, 8, [](const VectorKernels& k, Operands& o) {
    k.rms_norm(o.view(o.a), o.b.data(), 1e-5f, o.view(o.out));
  });
  Register("rope_halves_128", isa, 8, [](const VectorKernels& k, Operands& o) {
    MatrixView<const float> table{o.b.data(), kRows, 64};
    k.rope_halves(o.view(o.a), {table, table, 128});
  });
  Register("rope_adjacent_128", isa, 8, [](const VectorKernels& k, Operands& o) {
    MatrixView<const float> table{o.b.data(), kRows, 64};
    k.rope_adjacent(o.view(o.a), {table, table, 128});
  });
  Register("silu_mul", isa, 12, [](const VectorKernels& k, Operands& o) {
    k.silu_mul(o.view(o.a), o.view(o.b), o.view(o.out));
  });
  Register("gelu_tanh_mul", isa, 12, [](const VectorKernels& k, Operands& o) {
    k.gelu_tanh_mul(o.view(o.a), o.view(o.b), o.view(o.out));
  });
  Register("softcap", isa, 8,
           [](const VectorKernels& k, Operands& o) { k.softcap(o.view(o.a), 30.0f); });
  Register("add", isa, 12,
           [](const VectorKernels& k, Operands& o) { k.add(o.view(o.out), o.view(o.b)); });
  Register("softmax", isa, 8, [](const VectorKernels& k, Operands& o) { k.softmax(o.view(o.a)); });
  Register("row_max", isa, 4, [](const VectorKernels& k, Operands& o) {
    benchmark::DoNotOptimize(k.row_max(o.a.data(), kRows * kCols));
  });
  Register("f32_to_f16", isa, 6, [](const VectorKernels& k, Operands& o) {
    k.f32_to_f16(o.view(o.a), {o.half.data(), kRows, kCols});
  });
  Register("bf16_to_f32", isa, 6, [](const VectorKernels& k, Operands& o) {
    k.bf16_to_f32({o.half.data(), kRows, kCols}, o.view(o.out));
  });
}

const bool kRegistered = [] {
  for (const KernelTable& table : AvailableKernels()) RegisterAll(table.isa);
  return true;
}();

}  // namespace
}  // namespace quire::kernels
