#include "sched/simulator.h"

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include "testing/random_runs.h"

namespace quire::sched {
namespace {

// 70B geometry: 320 KiB per token, so 10 MiB per block of 32; 640 GiB of KV.
SimulatorOptions SeventyB() {
  SimulatorOptions options;
  options.scheduler.max_num_seqs = 256;
  options.scheduler.max_num_batched_tokens = 4096;
  options.scheduler.max_model_len = 8192;
  options.cache.block_tokens = 32;
  options.cache.frame_bytes = 32 * 327680;
  options.cache.frames = 65536;
  return options;
}

TraceOptions Kind(TraceKind kind, int requests, double requests_per_s) {
  TraceOptions options;
  options.kind = kind;
  options.requests = requests;
  options.requests_per_s = requests_per_s;
  options.max_total_tokens = 8192;
  return options;
}

SimulationReport Replay(const SimulatorOptions& options, const TraceOptions& trace) {
  Result<SimulationReport> report = Simulate(options, MakeTrace(trace), [](int64_t) {});
  EXPECT_TRUE(report.ok());
  return *report;
}

TEST(Trace, IsAFunctionOfItsOptionsAndSortedByArrival) {
  for (TraceKind kind : {TraceKind::kChat, TraceKind::kAgents, TraceKind::kRetrieval,
                         TraceKind::kBatch, TraceKind::kAdversarial}) {
    const TraceOptions options = Kind(kind, 300, 5.0);
    const auto trace = MakeTrace(options);
    const auto again = MakeTrace(options);
    ASSERT_EQ(trace.size(), 300u);
    double before = 0.0;
    for (size_t i = 0; i < trace.size(); ++i) {
      EXPECT_EQ(PromptOf(trace[i]), PromptOf(again[i]));
      EXPECT_GE(trace[i].arrival_s, before);
      EXPECT_LE(trace[i].total_tokens(), options.max_total_tokens);
      EXPECT_GE(trace[i].output_tokens, 1);
      before = trace[i].arrival_s;
    }
  }
}

TEST(Trace, AConversationsNextTurnHoldsTheAnswerBefore) {
  TraceRequest first;
  first.prefix = 3;
  first.prefix_tokens = 10;
  first.content = 5;
  first.prompt_tokens = 20;
  first.output_tokens = 7;
  TraceRequest next = first;
  next.prompt_tokens = 40;
  std::vector<TokenId> history = PromptOf(first);
  for (int i = 0; i < 7; ++i) history.push_back(OutputToken(first, 0, i));
  const std::vector<TokenId> prompt = PromptOf(next);
  EXPECT_TRUE(std::equal(history.begin(), history.end(), prompt.begin()));
  EXPECT_NEAR(BestHitRate({first, next}), 37.0 / 80.0, 1e-12);
}

TEST(Trace, RecordedPromptsAreWhatIsSubmittedAndHitEachOther) {
  TraceRequest first;
  first.prompt_ids = {1, 2, 3, 4, 5, 6};
  first.prompt_tokens = 6;
  TraceRequest second = first;
  second.prompt_ids = {1, 2, 3, 9, 5, 6, 7, 8};
  second.prompt_tokens = 8;
  EXPECT_EQ(PromptOf(second), second.prompt_ids);
  EXPECT_NEAR(BestHitRate({first, second}), 3.0 / 14.0, 1e-12);
  EXPECT_NEAR(BestHitRate({first, first}), 5.0 / 12.0, 1e-12);  // the last token is computed
  second.cache_salt = "another tenant";
  EXPECT_EQ(BestHitRate({first, second}), 0.0);
}

TEST(Simulator, AgentsHitAlmostAllThatAnyCacheCould) {
  // Memory for a fraction of what the agents ever hold.
  SimulatorOptions options = SeventyB();
  const int requests = static_cast<int>(std::max<int64_t>(600, testing::TestRuns(3000)));
  options.cache.frames = requests * 5;
  const SimulationReport report =
      Replay(options, Kind(TraceKind::kAgents, requests, requests / 1000.0));
  EXPECT_EQ(report.requests_finished, requests);
  EXPECT_GT(report.cache.frames_evicted, 0);
  std::printf("hits %.4f of %.4f, %lld evicted\n", report.hit_rate, report.hit_rate_best,
              static_cast<long long>(report.cache.frames_evicted));
  EXPECT_GT(report.hit_rate_best, 0.8);
  EXPECT_GE(report.hit_rate, 0.96 * report.hit_rate_best)
      << report.hit_rate << " of " << report.hit_rate_best;
  EXPECT_LE(report.hit_rate, report.hit_rate_best);
}

TEST(Simulator, NobodyStarvesOnTheAdversarialTrace) {
  SimulatorOptions options = SeventyB();
  options.cache.frames = 400;
  options.scheduler.max_overtakes = 32;
  options.scheduler.max_model_len = 2048;
  TraceOptions trace = Kind(TraceKind::kAdversarial, 600, 60.0);
  trace.max_total_tokens = 2048;
  const SimulationReport report = Replay(options, trace);
  EXPECT_EQ(report.requests_finished, 600);
  EXPECT_EQ(report.requests_refused, 0);
  EXPECT_GT(report.scheduler.preemptions, 0);
  EXPECT_GT(report.scheduler.overtakes_max, 0);
  EXPECT_LE(report.scheduler.overtakes_max, 32);
  EXPECT_EQ(report.cache.frames_leased, 0);
  // Preemption must stay the exception: most of the work is not done twice.
  const double tokens =
      static_cast<double>(report.scheduler.prefill_tokens + report.scheduler.decode_tokens);
  EXPECT_LT(static_cast<double>(report.scheduler.recomputed_tokens), 0.2 * tokens);
  std::printf(
      "%lld steps, %.1f s, recomputed %lld of %.0f tokens, usage %.3f, %lld preemptions, "
      "TTFT p99 %.2f s\n",
      static_cast<long long>(report.steps), report.duration_s,
      static_cast<long long>(report.scheduler.recomputed_tokens), tokens, report.usage_mean,
      static_cast<long long>(report.scheduler.preemptions), report.ttft_s.p99);
}

TEST(Simulator, TenThousandRequestsAtSeventyBillionParametersTakeSeconds) {
  const int requests = static_cast<int>(testing::TestRuns(10000));
  const auto start = std::chrono::steady_clock::now();
  const SimulationReport report = Replay(SeventyB(), Kind(TraceKind::kChat, requests, 20.0));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "%lld requests, %lld steps: %.2f s; TTFT p50 %.3f p99 %.3f s, TPOT p50 %.4f s, "
      "usage %.3f, waste %.4f, hits %.3f of %.3f, %.0f tokens/s\n",
      static_cast<long long>(report.requests), static_cast<long long>(report.steps), seconds,
      report.ttft_s.p50, report.ttft_s.p99, report.tpot_s.p50, report.usage_mean, report.waste_mean,
      report.hit_rate, report.hit_rate_best, report.output_tokens_per_s);
  EXPECT_EQ(report.requests_finished, requests);
  EXPECT_LT(report.waste_mean, 0.04);
  EXPECT_LT(seconds, 60.0);
}

TEST(Simulator, EveryKindOfTraceEnds) {
  SimulatorOptions options = SeventyB();
  options.cache.frames = 2000;
  for (TraceKind kind : {TraceKind::kChat, TraceKind::kRetrieval, TraceKind::kBatch}) {
    const SimulationReport report = Replay(options, Kind(kind, 300, 10.0));
    EXPECT_EQ(report.requests_finished, 300);
    EXPECT_GT(report.hit_rate, 0.0);
    EXPECT_GT(report.usage_max, report.usage_mean);
    EXPECT_GE(report.latency_s.p50, report.ttft_s.p50);
    EXPECT_GE(report.ttft_s.max, report.ttft_s.p99);
  }
}

TEST(Simulator, RefusesWhatCannotWorkWithSizes) {
  SimulatorOptions options = SeventyB();
  options.cache.frames = 100;
  const Result<SimulationReport> report = Simulate(options, {}, [](int64_t) {});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("256"), std::string::npos);   // frames needed
  EXPECT_NE(report.error().message.find("100"), std::string::npos);   // available
  EXPECT_NE(report.error().message.find("3200"), std::string::npos);  // tokens that fit
}

TEST(CostModel, AddsWhatAStepReadsAndComputes) {
  CostModel cost;
  cost.weight_bytes = 100;
  cost.flops_per_token = 2;
  cost.kv_bytes_per_token = 10;
  cost.bandwidth_bytes_per_s = 10;
  cost.flops_per_s = 1;
  cost.step_overhead_s = 0.5;
  EXPECT_DOUBLE_EQ(cost.StepSeconds(1, 3), 10 + 3 + 0.5);   // memory decides
  EXPECT_DOUBLE_EQ(cost.StepSeconds(20, 3), 40 + 3 + 0.5);  // arithmetic decides
}

}  // namespace
}  // namespace quire::sched
