// What attention scores cost: attention with and without them, in turn, so that both see the same
// disturbances. `overhead_%` compares the fastest iterations: of attention alone, which is a part
// of a step.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "kvstore/attention_harness.h"
#include "kvstore/cold_sequence.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

constexpr size_t kColdBytes = size_t{128} << 20;  // many times the last-level cache

struct Case {
  KvCodec codec = KvCodec::kF16;
  int context = 0;  // slots before the step
  int rows = 1;
  int scored = 1;  // of the rows, the last ones
  int threads = 1;
};

// Llama-3.1-8b's heads.
constexpr int kQHeads = 32;
constexpr int kKvHeads = 8;
constexpr int kHeadDim = 128;

class ScoredAttention {
 public:
  explicit ScoredAttention(const Case& c)
      : layers_(LayersOf(c)),
        layout_(std::move(KvLayout::Create({kKvHeads, kHeadDim, std::vector<int>(layers_, 0)},
                                           {c.codec, c.codec, 32}))
                    .value()),
        sequence_(layout_, c.context, c.rows),
        limits_{.max_rows = c.rows, .max_sequences = 1, .q_heads = kQHeads, .threads = c.threads},
        plain_(layout_, limits_),
        scored_(layout_, limits_),
        team_(c.threads),
        queries_(static_cast<size_t>(c.rows) * kQHeads * kHeadDim, 0.1f),
        out_(queries_.size()),
        sums_(static_cast<size_t>(c.context + c.rows) * kKvHeads) {
    const SequenceRun run = sequence_.run();
    const ScoreRequest request{0, c.rows - c.scored, c.rows};
    plain_.Build({&run, 1});
    scored_.Build({&run, 1}, {&request, 1});
  }

  // Seconds.
  double Plain() { return Attend(plain_, {}); }
  double Scored() {
    const MatrixView<float> sums{sums_.data(), kKvHeads,
                                 static_cast<int64_t>(sums_.size()) / kKvHeads};
    return Attend(scored_, {&sums, 1});
  }
  void NextLayer() { layer_ = (layer_ + 1) % layers_; }

 private:
  static int LayersOf(const Case& c) {
    const double bits = kernels::BitsPerValue(c.codec, kHeadDim, 32);
    const double bytes = bits / 8 * 2 * kHeadDim * kKvHeads * (c.context + c.rows);
    return static_cast<int>(std::clamp(static_cast<double>(kColdBytes) / bytes, 2.0, 100.0));
  }

  double Attend(AttentionPlan& plan, std::span<const MatrixView<float>> scores) {
    const int64_t cols = kQHeads * kHeadDim;
    const int64_t rows = static_cast<int64_t>(queries_.size()) / cols;
    const auto begin = std::chrono::steady_clock::now();
    Attention(
        kernels_, plan, sequence_.store(),
        {layer_, {queries_.data(), rows, cols}, {out_.data(), rows, cols}, {0.1f, 0.0f}, scores},
        team_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const kernels::KernelTable& kernels_ = kernels::DefaultKernels();
  int layers_;
  KvLayout layout_;
  ColdSequence sequence_;
  AttentionLimits limits_;
  AttentionPlan plain_;
  AttentionPlan scored_;
  base::ThreadTeam team_;
  std::vector<float> queries_, out_, sums_;
  int layer_ = 0;
};

void BM_Scores(benchmark::State& state, const Case& c) {
  ScoredAttention attention(c);
  double plain = 1e9;
  double scored = 1e9;
  for (auto _ : state) {
    plain = std::min(plain, attention.Plain());
    attention.NextLayer();
    scored = std::min(scored, attention.Scored());
    attention.NextLayer();
  }
  state.counters["plain_us"] = plain * 1e6;
  state.counters["scored_us"] = scored * 1e6;
  state.counters["overhead_%"] = (scored / plain - 1) * 100;
}

void Register(const Case& c) {
  const std::string name =
      fmt::format("scores/{}/context:{}/rows:{}/scored:{}/threads:{}", kernels::Name(c.codec),
                  c.context, c.rows, c.scored, c.threads);
  benchmark::RegisterBenchmark(name.c_str(), BM_Scores, c)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

const bool kRegistered = [] {
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  for (int threads : all == 1 ? std::vector{1} : std::vector{all, 1}) {
    for (KvCodec codec : {KvCodec::kF16, KvCodec::kInt8, KvCodec::kInt4, KvCodec::kKivi2}) {
      for (int context : {512, 2048, 8192}) Register({codec, context, 1, 1, threads});
      Register({codec, 0, 4096, 4096, threads});   // H2O: a whole prompt
      Register({codec, 3584, 512, 512, threads});  // its last chunk
      Register({codec, 0, 4096, 32, threads});     // SnapKV
    }
  }
  return true;
}();

}  // namespace
}  // namespace quire::kvstore
