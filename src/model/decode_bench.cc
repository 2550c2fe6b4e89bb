// A whole decode step at long context, by codec: a made model with llama-3.1-8b's layers (32 query
// heads, 8 KV heads of 128 channels) in Q4_0, four of them, so that weights and keys stand in the
// proportion of the whole model. The context is not computed (kvstore/cold_sequence.h); a step is
// the forward pass of one token, without logits.
//
// `x f16`: how many times f16's speed in the same run, fastest steps compared.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include "base/check.h"
#include "kvstore/cold_sequence.h"
#include "model/model_files.h"
#include "model/random_model.h"
#include "model/transformer.h"

namespace quire::model {
namespace {

using kernels::KvCodec;

constexpr int kLayers = 4;
constexpr int kMaxContext = 131072;

class MadeModel {
 public:
  explicit MadeModel(int threads) : team_(threads) {
    RandomModelOptions options{.sizes = NamedShape("llama-3.1-8b").value(), .type = DType::kQ4_0};
    options.sizes.layers = kLayers;
    options.sizes.vocab_size = 1024;  // logits are not computed
    options.sizes.context_length = kMaxContext + 64;
    const auto path = std::filesystem::temp_directory_path() /
                      fmt::format("quire_decode_bench_{}.gguf", ::getpid());
    QUIRE_CHECK(WriteRandomModel(options, path.string(), team_, [](double) {}).ok());
    files_ = std::make_unique<ModelFiles>(std::move(ModelFiles::Open(path.string())).value());
    weights_ =
        std::make_unique<Weights>(std::move(LoadWeights(*files_, team_, [](double) {})).value());
    std::filesystem::remove(path);  // it stays mapped
  }

  const ModelConfig& config() const { return *files_->config(); }
  TransformerParts parts() { return {config(), *weights_, kernels::DefaultKernels(), team_}; }

 private:
  base::ThreadTeam team_;
  std::unique_ptr<ModelFiles> files_;
  std::unique_ptr<Weights> weights_;
};

MadeModel& Model() {
  static MadeModel model(static_cast<int>(std::thread::hardware_concurrency()));
  return model;
}

// Seconds of the fastest step, by context.
std::map<int, double>& FastestF16() {
  static std::map<int, double> fastest;
  return fastest;
}

void BM_DecodeStep(benchmark::State& state, KvCodec codec, int context) {
  using Clock = std::chrono::steady_clock;
  const auto layout = kvstore::KvLayout::Create(
      KvGeometryOf(Model().config()), {.key_codec = codec, .value_codec = codec, .block_size = 32});
  QUIRE_CHECK(layout.ok());
  kvstore::ColdSequence sequence(*layout, context, 1);
  Transformer transformer(
      Model().parts(), *layout,
      {.rows = 1, .sequences = 1, .logit_rows = 1, .max_positions = context + 1});
  const TokenId token = 1;
  const kvstore::SequenceRun run = sequence.run();
  double best = 1e9;
  for (auto _ : state) {
    const auto begin = Clock::now();
    transformer.Forward({{&token, 1}, {&context, 1}, {&run, 1}, {}}, sequence.store());
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  state.counters["best_ms"] = best * 1e3;
  if (codec == KvCodec::kF16) FastestF16()[context] = best;
  if (FastestF16().contains(context)) state.counters["x f16"] = FastestF16()[context] / best;
}

const bool kRegistered = [] {
  for (const int context : {8192, 32768, kMaxContext}) {
    for (const KvCodec codec : {KvCodec::kF16, KvCodec::kFp8E4M3, KvCodec::kInt8, KvCodec::kInt4,
                                KvCodec::kKivi4, KvCodec::kKivi2}) {
      const std::string name = fmt::format("step/{}/context:{}", kernels::Name(codec), context);
      benchmark::RegisterBenchmark(name.c_str(), BM_DecodeStep, codec, context)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace quire::model
