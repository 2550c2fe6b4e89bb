// Attention over a cold cache: decode at long context beside what the machine can read at best, and
// prefill beside what it can multiply.
//
// GB/s counts the encoded keys and values that the queries see, once per KV head; GFLOP/s counts
// 4 * head_dim per (query, q head, position seen). Both are of the fastest iteration, which a busy
// machine disturbs least; `share` is that against the ceiling measured at the start of the same
// run.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "kernels/target.h"
#include "kvstore/attention_harness.h"

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
  double flops() const {
    double seen = static_cast<double>(rows) * context + 0.5 * rows * (rows + 1.0);
    return 4.0 * heads.head_dim * heads.q_heads * seen;
  }
};

// One sequence whose frames lie scattered over an arena of as many layers as no cache can hold.
class ColdSequence {
 public:
  explicit ColdSequence(const Case& c)
      : layers_(static_cast<int>(std::min<size_t>(kColdBytes / c.kv_bytes() + 1, 200))),
        layout_(std::move(KvLayout::Create(
                              {c.heads.kv_heads, c.heads.head_dim, std::vector<int>(layers_, 0)},
                              {c.codec, c.codec, c.block_size}))
                    .value()),
        frames_((c.context + c.rows + c.block_size - 1) / c.block_size),
        store_(std::move(KvStore::Create(layout_, frames_.size() * layout_.frame_bytes())).value()),
        plan_(layout_, {.max_rows = c.rows,
                        .max_sequences = 1,
                        .q_heads = c.heads.q_heads,
                        .threads = c.threads}),
        team_(c.threads) {
    std::memset(store_.frame({0}), 0x2c, store_.arena_bytes());  // small numbers in every codec
    for (size_t i = 0; i < frames_.size(); ++i) frames_[i] = {static_cast<int32_t>(i)};
    base::CounterRng rng(1, 2, 3);
    for (size_t i = frames_.size() - 1; i > 0; --i) {
      std::swap(frames_[i], frames_[rng.NextBelow(i + 1)]);
    }
    table_ = {0, frames_};
    SequenceRun run{0, c.rows, c.context, {&table_, 1}};
    plan_.Build({&run, 1});
  }

  int layers() const { return layers_; }

  void Attend(const AttentionRows& rows) {
    Attention(testing::TableFor(kernels::Isa::kAvx2), plan_, store_, rows, team_);
  }

 private:
  int layers_;
  KvLayout layout_;
  std::vector<FrameId> frames_;
  KvStore store_;
  AttentionPlan plan_;
  base::ThreadTeam team_;
  BlockTable table_;
};

void BM_Attention(benchmark::State& state, Case c, double read_ceiling, double fma_ceiling) {
  ColdSequence sequence(c);
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
  double bytes = best.Rate(static_cast<double>(c.kv_bytes()));
  double flops = best.Rate(c.flops());
  state.counters["GB/s"] = bytes;
  state.counters["GFLOP/s"] = flops;
  state.counters["share"] = c.rows == 1 ? bytes / read_ceiling : flops / fma_ceiling;
}

void Register(const Case& c, double read_ceiling, double fma_ceiling) {
  const std::string name = fmt::format("{}/{}/{}/block:{}/context:{}/rows:{}/threads:{}",
                                       c.rows == 1 ? "decode" : "prefill", c.heads.name,
                                       Name(c.codec), c.block_size, c.context, c.rows, c.threads);
  benchmark::RegisterBenchmark(name.c_str(), BM_Attention, c, read_ceiling, fma_ceiling)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterAll() {
  const double fma = FmaPeak();
  fmt::print("ceiling: {:.1f} GFLOP/s fused multiply-adds on one thread\n", fma);
  for (int threads : {1, 2}) {
    const double read = ReadBandwidth(threads);
    fmt::print("ceiling: {:.1f} GB/s read by {} threads\n", read, threads);
    for (const Heads& heads : {kLlama8B, kQwenHalfB}) {
      for (KvCodec codec : kernels::kAllKvCodecs) {
        for (int context : {1024, 8192, 32768}) {
          Register({heads, codec, 32, context - 1, 1, threads}, read, fma * threads);
        }
        for (int context : {0, 4096}) {
          Register({heads, codec, 32, context, 512, threads}, read, fma * threads);
        }
      }
      for (int block_size : {16, 64}) {
        Register({heads, KvCodec::kF16, block_size, 8191, 1, threads}, read, fma * threads);
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
