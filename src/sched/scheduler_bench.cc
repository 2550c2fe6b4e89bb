// One scheduling decision with 256 running and 1,000 waiting requests. The bar: under 200 us.
#include <chrono>

#include <benchmark/benchmark.h>

#include "sched/scheduler.h"
#include "sched/trace.h"

namespace quire::sched {
namespace {

constexpr int kRunning = 256;
constexpr int kWaiting = 1000;
constexpr int kPromptTokens = 512;

Request BenchRequest(int number, int max_tokens) {
  TraceRequest from;
  from.prefix = number % 16;  // sixteen system prompts
  from.prefix_tokens = kPromptTokens / 2;
  from.content = number;
  from.prompt_tokens = kPromptTokens / 2;
  Request request;
  request.prompt = PromptOf(from);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

void Step(Scheduler& scheduler, std::vector<SequenceOutput>& outputs) {
  static const TokenId kToken = 7;
  outputs.clear();
  for (SequenceId id : scheduler.plan().samplers) {
    outputs.push_back({.sequence = id, .tokens = std::span(&kToken, 1), .candidates = {}});
  }
  scheduler.Commit(outputs);
}

// seats: how many sequences may run at all. With kRunning nobody waiting is looked at; with more,
// the memory is what is full, and every step looks for somebody who fits.
void BM_Schedule(benchmark::State& state) {
  SchedulerOptions options;
  options.max_num_seqs = static_cast<int>(state.range(0));
  options.max_num_batched_tokens = 8192;
  options.max_model_len = 1 << 19;
  kv::KvCacheOptions cache;
  cache.block_tokens = 32;
  cache.frames = (1 << 14) + 1024;  // a prompt of max_model_len fits alone only
  Scheduler scheduler(options, cache);
  std::vector<SequenceOutput> outputs;
  for (int i = 0; i < kRunning; ++i) {
    if (!scheduler.Submit(BenchRequest(i, 100000)).ok()) state.SkipWithError("refused");
  }
  while (static_cast<int>(scheduler.running().size()) < kRunning || !scheduler.waiting().empty()) {
    scheduler.Schedule();
    Step(scheduler, outputs);
  }
  const bool memory_is_full = options.max_num_seqs > kRunning;
  for (int i = 0; i < kWaiting; ++i) {
    Request request = BenchRequest(kRunning + i, 100);
    // The first in order never fits beside the running ones.
    if (memory_is_full && i == 0) {
      request.priority = -1;
      TraceRequest big;
      big.content = 1 << 20;
      big.prompt_tokens = (1 << 19) - 2;
      request.prompt = PromptOf(big);
    }
    if (!scheduler.Submit(std::move(request)).ok()) state.SkipWithError("refused");
  }
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const StepPlan& plan = scheduler.Schedule();
    benchmark::DoNotOptimize(plan.sequences.data());
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - start).count());
    if (static_cast<int>(plan.sequences.size()) != kRunning) state.SkipWithError("not 256 running");
    Step(scheduler, outputs);
  }
}
BENCHMARK(BM_Schedule)->Arg(kRunning)->Arg(kRunning + 8)->UseManualTime()->Iterations(500);

// The other half of the bookkeeping.
void BM_Match(benchmark::State& state) {
  kv::KvCacheOptions options;
  options.frames = 4096;
  options.max_lease_tokens = 1 << 16;
  kv::KvCache cache(options);
  TraceRequest from;
  from.prompt_tokens = static_cast<int>(state.range(0));
  const std::vector<TokenId> tokens = PromptOf(from);
  {
    auto lease = cache.Reserve(cache.NoMatch({}), static_cast<int>(tokens.size()));
    cache.Commit(*lease, tokens);
  }
  for (auto _ : state) benchmark::DoNotOptimize(cache.Match(tokens, {}).tokens);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Match)->Arg(1024)->Arg(32768);

}  // namespace
}  // namespace quire::sched
