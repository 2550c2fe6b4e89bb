// The simulator: a Scheduler without a model, on a clock that a cost model turns. For policies and
// sizes that no machine at hand has.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "sched/scheduler.h"
#include "sched/trace.h"

namespace quire::sched {

// The time of a step. Weights are read once per step, tokens cost arithmetic, every sequence's KV
// is read once: max(weights / bandwidth, tokens * flops / peak) + KV / bandwidth + overhead.
struct CostModel {
  double weight_bytes = 140e9;         // 70B parameters in 16 bits
  double flops_per_token = 140e9;      // 2 per parameter
  double kv_bytes_per_token = 327680;  // 80 layers, 8 heads of 128, f16
  double bandwidth_bytes_per_s = 13e12;
  double flops_per_s = 4e15;
  double step_overhead_s = 1e-3;

  double StepSeconds(int64_t tokens, int64_t kv_tokens_read) const;
};

struct SimulatorOptions {
  SchedulerOptions scheduler;
  kv::KvCacheOptions cache;
  CostModel cost;
};

// Of one quantity, in seconds.
struct Percentiles {
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};
Percentiles PercentilesOf(std::vector<double> values);

struct SimulationReport {
  int64_t requests = 0;
  int64_t requests_refused = 0;
  int64_t requests_finished = 0;
  int64_t output_tokens = 0;
  int64_t steps = 0;
  double duration_s = 0.0;  // of the simulated clock
  double output_tokens_per_s = 0.0;

  Percentiles ttft_s;     // arrival to first token
  Percentiles tpot_s;     // between tokens of a sequence, its mean
  Percentiles latency_s;  // arrival to last token

  // Shares, means over time.
  double usage_mean = 0.0;  // leased frames of all
  double usage_max = 0.0;
  double waste_mean = 0.0;     // token slots without a token, of those leased
  double hit_rate = 0.0;       // of prompt tokens, at first admission
  double hit_rate_best = 0.0;  // what a cache without limits would find
  double batch_mean = 0.0;     // sequences per step

  SchedulerStats scheduler;
  kv::KvStats cache;
};

// Replays `trace` (sorted by arrival) to its end; `progress` gets the requests that have ended, at
// every step. kUsage where the options cannot work.
Result<SimulationReport> Simulate(const SimulatorOptions& options,
                                  const std::vector<TraceRequest>& trace,
                                  base::FunctionRef<void(int64_t)> progress);

}  // namespace quire::sched
