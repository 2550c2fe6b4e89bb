// Matrix multiplication on the shapes of a 0.5B model (hidden 896, feed-forward 4864, vocabulary
// 151936), beside what the machine can do at best: reading memory, and fused multiply-adds.
//
// GB/s counts the bytes of the weights once, GFLOP/s 2 * tokens * rows * cols; both are of the
// fastest iteration, which a busy machine disturbs least.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/thread_team.h"
#include "kernels/matmul.h"
#include "kernels/matmul_kernels.h"
#include "kernels/matmul_test_util.h"
#include "kernels/target.h"
#include "tensor/buffer.h"

namespace quire::kernels {
namespace {

constexpr size_t kColdBytes = 128 << 20;  // several times the last-level cache

// The fastest of the iterations.
class BestTime {
 public:
  template <typename F>
  void Measure(F&& work) {
    const auto begin = Clock::now();
    work();
    best_ = std::min(best_, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  double Rate(double work) const { return work / best_ / 1e9; }

 private:
  using Clock = std::chrono::steady_clock;
  double best_ = 1e9;
};

struct Shape {
  const char* name;
  int64_t rows;
  int64_t cols;
};
constexpr Shape kUp = {"up", 4864, 896};
constexpr Shape kDown = {"down", 896, 4864};
constexpr Shape kOutput = {"output", 151936, 896};

// Enough copies of one matrix that a pass over them finds nothing in the caches.
std::vector<PackedMatrix> ColdMatrices(DType type, Shape shape) {
  const std::vector<std::byte> bytes = RandomRows(type, shape.rows, shape.cols, 1);
  std::vector<PackedMatrix> matrices;
  for (size_t total = 0; total < kColdBytes; total += bytes.size()) {
    matrices.emplace_back(type, shape.rows, shape.cols);
    matrices.back().PackRows(0, {type, shape.rows, shape.cols, bytes.data()});
  }
  return matrices;
}

void BM_Matmul(benchmark::State& state, DType type, Shape shape, int64_t tokens, int threads) {
  const KernelTable table = AvailableKernels().back();
  const std::vector<PackedMatrix> matrices = ColdMatrices(type, shape);
  const std::vector<float> x = RandomFloats(tokens * shape.cols, 2);
  std::vector<float> out(static_cast<size_t>(tokens * shape.rows));
  base::ThreadTeam team(threads);
  PackedActivations packed(tokens, shape.cols);
  size_t next = 0;
  BestTime best;
  for (auto _ : state) {
    best.Measure([&] {
      packed.Set(table, {x.data(), tokens, shape.cols}, ActivationFormFor(type), team);
      const MatmulJob job = {&matrices[next], {out.data(), tokens, shape.rows}, nullptr};
      Matmul(table, packed, {&job, 1}, team);
    });
    next = (next + 1) % matrices.size();
  }
  const auto weights = static_cast<double>(shape.rows * shape.cols);
  state.counters["GB/s"] = best.Rate(static_cast<double>(matrices[0].bytes()));
  state.counters["GFLOP/s"] = best.Rate(2 * static_cast<double>(tokens) * weights);
}

void BM_Pack(benchmark::State& state, DType type) {
  const std::vector<std::byte> bytes = RandomRows(type, kDown.rows, kDown.cols, 1);
  PackedMatrix matrix(type, kDown.rows, kDown.cols);
  BestTime best;
  for (auto _ : state) {
    best.Measure([&] { matrix.PackRows(0, {type, kDown.rows, kDown.cols, bytes.data()}); });
  }
  state.counters["GB/s"] = best.Rate(static_cast<double>(bytes.size()));
}

// The ceiling of everything that streams weights: reading memory that no cache holds.
void BM_ReadBandwidth(benchmark::State& state, int threads) {
  const size_t bytes = size_t{256} << 20;
  constexpr size_t kSlices = 64;
  const size_t slice = bytes / kSlices;
  Buffer buffer = Buffer::AllocateOrThrow(bytes);
  std::memset(buffer.data(), 1, bytes);
  base::ThreadTeam team(threads);
  int64_t next = 0;
  BestTime best;
  for (auto _ : state) {
    best.Measure([&] {
      team.ParallelFor(threads, 1, [&](int64_t begin, int64_t, int) {
        const auto index = static_cast<size_t>(next * threads + begin) % kSlices;
        const auto* words = reinterpret_cast<const uint64_t*>(buffer.data() + index * slice);
        uint64_t sum[8] = {};
        for (size_t i = 0; i < slice / 8; i += 8) {
          for (size_t j = 0; j < 8; ++j) sum[j] |= words[i + j];
        }
        benchmark::DoNotOptimize(sum);
      });
    });
    ++next;
  }
  state.counters["GB/s"] = best.Rate(static_cast<double>(slice) * threads);
}

#ifdef QUIRE_HAVE_X86
// The ceiling of float weights on one core: twelve independent chains of fused multiply-adds.
QUIRE_TARGET_BEGIN_AVX2
void FmaPeak(float* sums, int rounds) {
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(0.001f);
  __m256 v[12];
  for (int i = 0; i < 12; ++i) v[i] = _mm256_loadu_ps(sums + 8 * i);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) v[i] = _mm256_fmadd_ps(v[i], a, b);
  }
  for (int i = 0; i < 12; ++i) _mm256_storeu_ps(sums + 8 * i, v[i]);
}
QUIRE_TARGET_END

void BM_FmaPeak(benchmark::State& state) {
  std::vector<float> sums(96, 1.0f);
  constexpr int kRounds = 10000;
  BestTime best;
  for (auto _ : state) {
    best.Measure([&] { FmaPeak(sums.data(), kRounds); });
    benchmark::DoNotOptimize(sums.data());
  }
  state.counters["GFLOP/s"] = best.Rate(2.0 * 96 * kRounds);
}
#endif

void Register(DType type, Shape shape, int64_t tokens, int threads) {
  if (shape.cols % Traits(type).block_elements != 0) return;
  const std::string name =
      fmt::format("matmul/{}/{}/tokens:{}/threads:{}", Name(type), shape.name, tokens, threads);
  benchmark::RegisterBenchmark(name.c_str(), BM_Matmul, type, shape, tokens, threads)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

const bool kRegistered = [] {
  for (int threads : {1, 2}) {
    benchmark::RegisterBenchmark(fmt::format("ceiling/read/threads:{}", threads).c_str(),
                                 BM_ReadBandwidth, threads)
        ->UseRealTime();
  }
#ifdef QUIRE_HAVE_X86
  benchmark::RegisterBenchmark("ceiling/fma/threads:1", BM_FmaPeak);
#endif
  for (DType type : kAllDTypes) {
    benchmark::RegisterBenchmark(fmt::format("pack/{}", Name(type)).c_str(), BM_Pack, type);
    for (int threads : {1, 2}) {
      for (int64_t tokens : {1, 4, 16, 512}) {
        Register(type, kUp, tokens, threads);
        Register(type, kDown, tokens, threads);
      }
      if (type == DType::kQ8_0 || type == DType::kQ4_0) Register(type, kOutput, 1, threads);
    }
  }
  return true;
}();

}  // namespace
}  // namespace quire::kernels
