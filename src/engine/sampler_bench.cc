// Time to choose one token of a vocabulary of 151,936.
#include <cmath>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "engine/sampler.h"

namespace quire::engine {
namespace {

void Run(benchmark::State& state, const sched::SamplingParams& params, double spread) {
  const int kVocab = 151936;
  base::CounterRng rng(1, 2, 3);
  std::vector<float> logits(kVocab);
  for (float& l : logits) {
    l = static_cast<float>(spread * std::log(1e-9 + rng.NextUnit()) * -rng.NextUnit());
  }
  Sampler sampler(*kernels::DefaultKernels().vector, kVocab);
  int position = 0;
  for (auto _ : state) {
    SampleInput input{.logits = logits, .params = &params, .key = {1, 0, position++}};
    benchmark::DoNotOptimize(sampler.Sample(input));
  }
}

sched::SamplingParams Params(float temperature, int top_k, float top_p,
                             std::optional<int> logprobs) {
  sched::SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.logprobs = logprobs;
  return params;
}

void BM_Greedy(benchmark::State& state) {
  Run(state, Params(0.0f, 0, 1.0f, std::nullopt), 1.0);
}
void BM_GreedyLogprobs(benchmark::State& state) {
  Run(state, Params(0.0f, 0, 1.0f, 5), 1.0);
}
void BM_Temperature(benchmark::State& state) {
  Run(state, Params(1.0f, 0, 1.0f, std::nullopt), 1.0);
}
void BM_TopP(benchmark::State& state) {
  Run(state, Params(1.0f, 0, 0.95f, std::nullopt), 1.0);
}
void BM_TopPFlat(benchmark::State& state) {
  Run(state, Params(1.0f, 0, 0.95f, std::nullopt), 0.01);
}
void BM_TopK(benchmark::State& state) {
  Run(state, Params(1.0f, 40, 0.95f, std::nullopt), 1.0);
}

BENCHMARK(BM_Greedy);
BENCHMARK(BM_Temperature);
BENCHMARK(BM_TopP);
BENCHMARK(BM_TopPFlat);
BENCHMARK(BM_TopK);
BENCHMARK(BM_GreedyLogprobs);

}  // namespace
}  // namespace quire::engine
