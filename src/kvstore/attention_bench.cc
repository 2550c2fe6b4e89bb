// Attention over a cold cache: decode at long context beside what the machine can read at best, and
// prefill beside what it can multiply.
//
// GB/s counts the encoded keys and values that the queries see, once per KV head; GFLOP/s counts
// 4 * head_dim per (query, q head, position seen). Both are of the fastest iteration, which a busy
// machine disturbs least; `share` is that against the ceiling measured at the start of the same
// run, `x f16` how many times f16's speed in the same run it is
// (--benchmark_enable_random_interleaving with repetitions makes both see the same disturbances).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/target.h"
#include "kvstore/attention_harness.h"
#include "kvstore/cold_sequence.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

constexpr size_t kColdBytes = size_t{256} << 20;  // many times the last-level cache

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

// The fastest read of slices of cold memory, in GB/s.
double ReadBandwidth(int threads) {
  constexpr size_t kSlices = 32;
  constexpr size_t kSlice = kColdBytes / kSlices;
  Buffer buffer = Buffer::AllocateOrThrow(kColdBytes);
  std::memset(buffer.data(), 1, kColdBytes);
  base::ThreadTeam team(threads);
  BestTime best;
  for (size_t round = 0; round < 3 * kSlices / threads; ++round) {
    best.Measure([&] {
      team.ParallelFor(threads, 1, [&](int64_t begin, int64_t, int) {
        const size_t index = (round * threads + begin) % kSlices;
        const auto* words = reinterpret_cast<const uint64_t*>(buffer.data() + index * kSlice);
        uint64_t sum[8] = {};
        for (size_t i = 0; i < kSlice / 8; i += 8) {
          for (size_t j = 0; j < 8; ++j) sum[j] |= words[i + j];
        }
        benchmark::DoNotOptimize(sum);
      });
    });
  }
  return best.Rate(static_cast<double>(kSlice) * threads);
}

#ifdef QUIRE_HAVE_X86
// Twelve independent chains of fused multiply-adds.
QUIRE_TARGET_BEGIN_AVX2
void FmaChains(float* sums, int rounds) {
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

// One core's, in GFLOP/s.
double FmaPeak() {
  constexpr int kRounds = 20000;
  float sums[96] = {};
  BestTime best;
  for (int i = 0; i < 200; ++i) {
    best.Measure([&] { FmaChains(sums, kRounds); });
    benchmark::DoNotOptimize(sums);
  }
  return best.Rate(2.0 * 96 * kRounds);
}
#else
double FmaPeak() {
  return 0;
}
#endif

struct Heads {
  const char* name;
  int q_heads;
  int kv_heads;
  int head_dim;
};
constexpr Heads kLlama8B = {"32/8/128", 32, 8, 128};
constexpr Heads kQwenHalfB = {"14/2/64", 14, 2, 64};

struct Case {
  Heads heads;
  KvCodec codec = KvCodec::kF16;
  int block_size = 32;
  int context = 0;  // positions before the step
  int rows = 1;
  int threads = 1;

  size_t kv_bytes() const {  // that a step reads, per layer
    const double bits = kernels::BitsPerValue(codec, heads.head_dim, block_size);
    return static_cast<size_t>(bits * 2 * heads.head_dim * heads.kv_heads * (context + rows) / 8);
  }
  std::string Name() const {
    return fmt::format("{}/{}/{}/block:{}/context:{}/rows:{}/threads:{}",
                       rows == 1 ? "decode" : "prefill", heads.name, kernels::Name(codec),
                       block_size, context, rows, threads);
  }
  double flops() const {
    double seen = static_cast<double>(rows) * context + 0.5 * rows * (rows + 1.0);
    return 4.0 * heads.head_dim * heads.q_heads * seen;
  }
};

// A sequence of as many layers as no cache can hold.
class ColdAttention {
 public:
  explicit ColdAttention(const Case& c)
      : layers_(static_cast<int>(std::min<size_t>(kColdBytes / c.kv_bytes() + 1, 200))),
        layout_(std::move(KvLayout::Create(
                              {c.heads.kv_heads, c.heads.head_dim, std::vector<int>(layers_, 0)},
                              {c.codec, c.codec, c.block_size}))
                    .value()),
        sequence_(layout_, c.context, c.rows),
        plan_(layout_, {.max_rows = c.rows,
                        .max_sequences = 1,
                        .q_heads = c.heads.q_heads,
                        .threads = c.threads}),
        team_(c.threads) {
    const SequenceRun run = sequence_.run();
    plan_.Build({&run, 1});
  }

  int layers() const { return layers_; }

  void Attend(const AttentionRows& rows) {
    Attention(testing::TableFor(kernels::Isa::kAvx2), plan_, sequence_.store(), rows, team_);
  }

 private:
  int layers_;
  KvLayout layout_;
  ColdSequence sequence_;
  AttentionPlan plan_;
  base::ThreadTeam team_;
};

struct Ceilings {
  double read = 0;  // GB/s
  double fma = 0;   // GFLOP/s
};

// The fastest times so far, in GFLOP/s: ratios to f16 are of the same run.
std::map<std::string, double>& Fastest() {
  static std::map<std::string, double> fastest;
  return fastest;
}

void BM_Attention(benchmark::State& state, const Case& c, const Ceilings& ceilings) {
  ColdAttention sequence(c);
  int64_t cols = static_cast<int64_t>(c.heads.q_heads) * c.heads.head_dim;
  std::vector<float> q(static_cast<size_t>(c.rows * cols), 0.1f);
  std::vector<float> out(q.size());
  BestTime best;
  int layer = 0;
  for (auto _ : state) {
    best.Measure([&] {
      sequence.Attend({layer, {q.data(), c.rows, cols}, {out.data(), c.rows, cols}, {0.1f, 0.0f}});
    });
    layer = (layer + 1) % sequence.layers();
  }
  const double bytes = best.Rate(static_cast<double>(c.kv_bytes()));
  const double flops = best.Rate(c.flops());
  state.counters["GB/s"] = bytes;
  state.counters["GFLOP/s"] = flops;
  state.counters["share"] = c.rows == 1 ? bytes / ceilings.read : flops / ceilings.fma;
  double& fastest = Fastest()[c.Name()];
  fastest = std::max(fastest, flops);
  Case f16 = c;
  f16.codec = KvCodec::kF16;
  if (Fastest().contains(f16.Name())) {
    state.counters["x f16"] = fastest / Fastest()[f16.Name()];
  }
}

void Register(const Case& c, const Ceilings& ceilings) {
  benchmark::RegisterBenchmark(c.Name().c_str(), BM_Attention, c, ceilings)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

// f16 first: the others are compared with it.
constexpr KvCodec kCodecs[] = {KvCodec::kF16,     KvCodec::kF32,     KvCodec::kBf16,
                               KvCodec::kFp8E4M3, KvCodec::kFp8E5M2, KvCodec::kInt8,
                               KvCodec::kInt4,    KvCodec::kKivi4,   KvCodec::kKivi2};

void RegisterAll() {
  const double fma = FmaPeak();
  fmt::print("ceiling: {:.1f} GFLOP/s fused multiply-adds on one thread\n", fma);
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  for (int threads : all == 1 ? std::vector{1} : std::vector{all, 1}) {
    const Ceilings ceilings{ReadBandwidth(threads), fma * threads};
    fmt::print("ceiling: {:.1f} GB/s read by {} threads\n", ceilings.read, threads);
    for (const Heads& heads : {kLlama8B, kQwenHalfB}) {
      for (int context : {8192, 32768, 131072}) {
        for (KvCodec codec : kCodecs) Register({heads, codec, 32, context, 1, threads}, ceilings);
      }
      for (int block_size : {16, 64}) {
        Register({heads, KvCodec::kF16, block_size, 8192, 1, threads}, ceilings);
      }
      for (int context : {0, 4096}) {
        for (KvCodec codec : kCodecs) Register({heads, codec, 32, context, 512, threads}, ceilings);
      }
    }
  }
}

const bool kRegistered = [] {
  RegisterAll();
  return true;
}();

}  // namespace
}  // namespace quire::kvstore
