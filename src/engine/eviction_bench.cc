// What token eviction costs and gives, as ratios: every iteration measures the engine with and
// without, one after the other, and the counters are medians over the iterations.
//
//   engine_bench --benchmark_filter='Eviction'
#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "model/random_model.h"
#include "testing/median.h"

namespace quire::engine {
namespace {

constexpr int kContext = 8192;

// Shaped as a model of a billion parameters is, with fewer layers and words.
class BenchModel {
 public:
  static BenchModel& Get() {
    static BenchModel model;
    return model;
  }
  const LoadedModel& model() const { return *model_; }
  base::ThreadTeam& team() { return team_; }

 private:
  BenchModel() {
    const std::string path = std::filesystem::temp_directory_path() /
                             fmt::format("quire-eviction-bench-{}.gguf", ::getpid());
    model::RandomModelOptions options;
    options.sizes = {.name = "made",
                     .vocab_size = 4000,
                     .hidden_size = 1024,
                     .layers = 4,
                     .q_heads = 16,
                     .kv_heads = 4,
                     .head_dim = 64,
                     .ffn_size = 4096,
                     .context_length = kContext};
    QUIRE_CHECK(WriteRandomModel(options, path, team_, [](double) {}).ok());
    auto loaded = LoadedModel::Load(path, team_, [](double) {});
    std::filesystem::remove(path);
    QUIRE_CHECK(loaded.ok());
    model_ = std::make_unique<LoadedModel>(std::move(loaded).value());
  }

  base::ThreadTeam team_{2};
  std::unique_ptr<LoadedModel> model_;
};

sched::Request MakeRequest(kv::EvictionPolicy policy, int prompt_tokens, int max_tokens) {
  sched::Request request;
  for (int i = 0; i < prompt_tokens; ++i) request.prompt.push_back((i * 7919) % 4000);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.eviction.policy = policy;
  return request;
}

EngineOptions OptionsOf(kernels::KvCodec codec) {
  EngineOptions options;
  options.kv_format.key_codec = options.kv_format.value_codec = codec;
  options.max_num_seqs = 64;
  options.enable_prefix_caching = false;
  options.kv_cache_memory = size_t{1} << 30;
  return options;
}

// The step after the prompt's copies what is kept, once: it counts as the prompt's.
struct Times {
  double prefill_s = 0;  // of the first two tokens
  double decode_s = 0;   // of all others
};

Times TimesOf(const EngineOptions& options, const sched::Request& request) {
  BenchModel& bench = BenchModel::Get();
  auto engine = std::move(Engine::Create(bench.model(), options, bench.team())).value();
  QUIRE_CHECK(engine->Submit(request).ok());
  Times times;
  base::Stopwatch watch;
  int tokens = 0;
  while (engine->Step([&](const SequenceUpdate&) { ++tokens; })) {
    (tokens <= 2 ? times.prefill_s : times.decode_s) += watch.Lap();
  }
  return times;
}

// Decoding with as many tokens kept as the full cache has.
void EvictionDecode(benchmark::State& state, kv::EvictionPolicy policy, kernels::KvCodec codec) {
  const auto kept = static_cast<int>(state.range(0));
  const sched::Request plain = MakeRequest(kv::EvictionPolicy::kNone, kept, 66);
  sched::Request evicting = MakeRequest(policy, kept, 66);
  evicting.eviction.budget_tokens = kept;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double without = TimesOf(OptionsOf(codec), plain).decode_s;
    const double with = TimesOf(OptionsOf(codec), evicting).decode_s;
    ratios.push_back(with / without);
    state.SetIterationTime(with);
  }
  state.counters["time_ratio"] = testing::Median(ratios);
}

void EvictionPrefill(benchmark::State& state, kv::EvictionPolicy policy) {
  const sched::Request plain = MakeRequest(kv::EvictionPolicy::kNone, 4096, 2);
  sched::Request evicting = MakeRequest(policy, 4096, 2);
  evicting.eviction.budget_tokens = 819;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double without = TimesOf(OptionsOf(kernels::KvCodec::kF16), plain).prefill_s;
    const double with = TimesOf(OptionsOf(kernels::KvCodec::kF16), evicting).prefill_s;
    ratios.push_back(with / without);
    state.SetIterationTime(with);
  }
  state.counters["time_ratio"] = testing::Median(ratios);
}

struct Batch {
  size_t running_max = 0;
  double tokens_per_s = 0;  // of answers
};

Batch RunBatch(kv::EvictionPolicy policy, size_t kv_bytes) {
  BenchModel& bench = BenchModel::Get();
  EngineOptions options = OptionsOf(kernels::KvCodec::kF16);
  options.kv_cache_memory = kv_bytes;
  options.max_model_len = 4096;
  auto engine = std::move(Engine::Create(bench.model(), options, bench.team())).value();
  constexpr int kRequests = 24;
  constexpr int kAnswer = 256;
  for (int i = 0; i < kRequests; ++i) {
    sched::Request request = MakeRequest(policy, 2048, kAnswer);
    request.prompt[0] = i;
    request.eviction.budget_tokens = 512;
    QUIRE_CHECK(engine->Submit(std::move(request)).ok());
  }
  Batch batch;
  base::Stopwatch watch;
  while (engine->Step([](const SequenceUpdate&) {})) {
    batch.running_max = std::max(batch.running_max, engine->scheduler().running().size());
  }
  batch.tokens_per_s = kRequests * kAnswer / watch.Lap();
  return batch;
}

// Requests of 2,048 tokens in the memory of six of them, with a budget of 512 tokens and without.
void EvictionBatch(benchmark::State& state, kv::EvictionPolicy policy) {
  constexpr size_t kTokenBytes = 2 * 2 * 4 * 4 * 64;
  constexpr size_t kBytes = 6 * (2048 + 256) * kTokenBytes;
  Batch without;
  Batch with;
  for (auto _ : state) {
    without = RunBatch(kv::EvictionPolicy::kNone, kBytes);
    with = RunBatch(policy, kBytes);
  }
  state.counters["running"] = static_cast<double>(with.running_max);
  state.counters["running_without"] = static_cast<double>(without.running_max);
  state.counters["tokens_per_s"] = with.tokens_per_s;
  state.counters["tokens_per_s_without"] = without.tokens_per_s;
}

using kernels::KvCodec;
using kv::EvictionPolicy;

BENCHMARK_CAPTURE(EvictionDecode, h2o_f16, EvictionPolicy::kH2o, KvCodec::kF16)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionDecode, h2o_int8, EvictionPolicy::kH2o, KvCodec::kInt8)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionDecode, h2o_int4, EvictionPolicy::kH2o, KvCodec::kInt4)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionDecode, tova_f16, EvictionPolicy::kTova, KvCodec::kF16)
    ->Arg(2048)
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionDecode, streaming_f16, EvictionPolicy::kStreaming, KvCodec::kF16)
    ->Arg(2048)
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionPrefill, h2o, EvictionPolicy::kH2o)
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionPrefill, snapkv, EvictionPolicy::kSnapKv)
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EvictionBatch, h2o, EvictionPolicy::kH2o)
    ->Iterations(1)
    ->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(EvictionBatch, snapkv, EvictionPolicy::kSnapKv)
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace quire::engine
