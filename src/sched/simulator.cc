#include "sched/simulator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::sched {
namespace {

class Simulation {
 public:
  Simulation(const SimulatorOptions& options, const std::vector<TraceRequest>& trace)
      : cost_(options.cost), trace_(trace), scheduler_(options.scheduler, options.cache) {}

  SimulationReport Run(base::FunctionRef<void(int64_t)> progress) {
    while (next_arrival_ < trace_.size() || !scheduler_.idle()) {
      SubmitArrivals();
      const StepPlan& plan = scheduler_.Schedule();
      if (plan.empty()) {
        QUIRE_CHECK(scheduler_.idle());  // with everything free, somebody can always run
        if (next_arrival_ < trace_.size()) clock_s_ = trace_[next_arrival_].arrival_s;
        continue;
      }
      Execute(plan);
      progress(static_cast<int64_t>(latency_s_.size()));
    }
    return Report();
  }

 private:
  // A request on its way; by RequestId.
  struct Flight {
    size_t trace_index = 0;
    double first_token_s = 0.0;
    int sequences_started = 0;
  };

  void SubmitArrivals() {
    for (; next_arrival_ < trace_.size() && trace_[next_arrival_].arrival_s <= clock_s_;
         ++next_arrival_) {
      const TraceRequest& from = trace_[next_arrival_];
      Request request;
      request.prompt = PromptOf(from);
      request.sampling.max_tokens = std::max(1, from.output_tokens);
      request.sampling.ignore_eos = true;
      request.n = from.n;
      request.priority = from.priority;
      request.cache_salt = from.cache_salt;
      const Result<RequestId> id = scheduler_.Submit(std::move(request));
      if (!id.ok()) continue;  // counted by the scheduler
      if (id->value >= static_cast<int>(flights_.size())) flights_.resize(id->value + 1);
      flights_[id->value] = {next_arrival_, 0.0, 0};
    }
  }

  void Execute(const StepPlan& plan) {
    int64_t kv_tokens = 0;
    for (const ScheduledSequence& run : plan.sequences)
      kv_tokens += run.first_position + run.tokens;
    const double seconds = cost_.StepSeconds(plan.tokens(), kv_tokens);
    clock_s_ += seconds;
    batch_sum_ += static_cast<double>(plan.sequences.size());

    outputs_.clear();
    tokens_.clear();
    tokens_.reserve(plan.samplers.size());
    for (SequenceId id : plan.samplers) {
      const Sequence& sequence = scheduler_.sequence(id);
      Flight& flight = flights_[sequence.request.value];
      tokens_.push_back(
          OutputToken(trace_[flight.trace_index], sequence.index, sequence.output_tokens()));
      outputs_.push_back(
          {.sequence = id, .tokens = std::span(&tokens_.back(), 1), .candidates = {}});
      if (flight.sequences_started++ == 0) {
        flight.first_token_s = clock_s_;
        ttft_s_.push_back(clock_s_ - trace_[flight.trace_index].arrival_s);
      }
    }
    scheduler_.Commit(outputs_);
    output_tokens_ += static_cast<int64_t>(outputs_.size());
    for (RequestId id : scheduler_.finished()) Land(id);
    MeasureMemory(seconds);
  }

  void Land(RequestId id) {
    const Flight& flight = flights_[id.value];
    const TraceRequest& request = trace_[flight.trace_index];
    latency_s_.push_back(clock_s_ - request.arrival_s);
    if (request.output_tokens > 1) {
      tpot_s_.push_back((clock_s_ - flight.first_token_s) / (request.output_tokens - 1));
    }
  }

  void MeasureMemory(double seconds) {
    const kv::KvStats stats = scheduler_.cache().stats();
    const double usage = static_cast<double>(stats.frames_leased) / stats.frames_total;
    usage_sum_ += usage * seconds;
    busy_s_ += seconds;
    usage_max_ = std::max(usage_max_, usage);
    leased_sum_ += static_cast<double>(stats.tokens_leased) * seconds;
    wasted_sum_ += static_cast<double>(stats.tokens_wasted) * seconds;
  }

  SimulationReport Report() {
    SimulationReport report;
    report.scheduler = scheduler_.stats();
    report.cache = scheduler_.cache().stats();
    report.requests = static_cast<int64_t>(trace_.size());
    report.requests_refused = report.scheduler.requests_refused;
    report.requests_finished = report.scheduler.requests_finished;
    report.output_tokens = output_tokens_;
    report.steps = report.scheduler.steps;
    report.duration_s = clock_s_;
    report.ttft_s = PercentilesOf(std::move(ttft_s_));
    report.tpot_s = PercentilesOf(std::move(tpot_s_));
    report.latency_s = PercentilesOf(std::move(latency_s_));
    const auto ratio = [](double a, double b) { return b == 0.0 ? 0.0 : a / b; };
    report.output_tokens_per_s = ratio(static_cast<double>(output_tokens_), clock_s_);
    report.usage_mean = ratio(usage_sum_, busy_s_);
    report.usage_max = usage_max_;
    report.waste_mean = ratio(wasted_sum_, leased_sum_);
    report.hit_rate = ratio(static_cast<double>(report.scheduler.prompt_tokens_hit),
                            static_cast<double>(report.scheduler.prompt_tokens_queried));
    report.hit_rate_best = BestHitRate(trace_);
    report.batch_mean = ratio(batch_sum_, static_cast<double>(report.steps));
    return report;
  }

  CostModel cost_;
  const std::vector<TraceRequest>& trace_;
  Scheduler scheduler_;
  size_t next_arrival_ = 0;
  double clock_s_ = 0.0;
  std::vector<Flight> flights_;
  std::vector<SequenceOutput> outputs_;
  std::vector<TokenId> tokens_;
  std::vector<double> ttft_s_;
  std::vector<double> tpot_s_;
  std::vector<double> latency_s_;
  int64_t output_tokens_ = 0;
  double batch_sum_ = 0.0;
  double busy_s_ = 0.0;
  double usage_sum_ = 0.0;
  double usage_max_ = 0.0;
  double leased_sum_ = 0.0;
  double wasted_sum_ = 0.0;
};

}  // namespace

double CostModel::StepSeconds(int64_t tokens, int64_t kv_tokens_read) const {
  const double weights = weight_bytes / bandwidth_bytes_per_s;
  const double arithmetic = static_cast<double>(tokens) * flops_per_token / flops_per_s;
  const double kv =
      static_cast<double>(kv_tokens_read) * kv_bytes_per_token / bandwidth_bytes_per_s;
  return std::max(weights, arithmetic) + kv + step_overhead_s;
}

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {.p50 = at(0.50), .p90 = at(0.90), .p99 = at(0.99), .max = values.back()};
}

Result<SimulationReport> Simulate(const SimulatorOptions& options,
                                  const std::vector<TraceRequest>& trace,
                                  base::FunctionRef<void(int64_t)> progress) {
  QUIRE_RETURN_IF_ERROR(Scheduler::Validate(options.scheduler, options.cache));
  return Simulation(options, trace).Run(progress);
}

}  // namespace quire::sched
