// Metrics: what a Prometheus server reads, under our names (quire_*, units last) and under vLLM's,
// so that dashboards made for it work.
//
// Owns the histograms and counters of requests; gauges and counters of the cache and the scheduler
// are taken from a snapshot when asked for, so they equal what the allocator holds. Every function
// may be called from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace quire::engine {

// When things happened to a request, by base::MonotonicSeconds().
struct RequestTimes {
  double posted_s = 0;
  int prompt_tokens = 0;
  std::optional<double> admitted_s;
  std::optional<double> first_token_s;
  std::vector<double> last_token_s;  // of each sequence that has one
  int generated_tokens = 0;
};

// What the engine holds and has done, as of the end of a step.
struct EngineSnapshot {
  sched::SchedulerStats scheduler;
  kv::KvStats cache;
  EngineStats engine;
  SpeculationStats speculation;
};

struct MetricsLabels {
  std::string model;
  int block_tokens = 0;
  std::string codec;
  bool prefix_caching = true;
  bool speculation = false;  // its metrics are told only where there are drafters, as vLLM does
};

class Metrics {
 public:
  explicit Metrics(MetricsLabels labels);
  ~Metrics();

  // Sequence `index` of a request got `tokens` tokens at `now`; writes it into `times`.
  void Generated(RequestTimes& times, int index, int tokens, double now);
  void Finished(sched::FinishReason reason, const RequestTimes& times, double now);
  void Refused();

  // The text format of Prometheus, version 0.0.4.
  std::string Text(const EngineSnapshot& snapshot) const;

 private:
  struct Families;
  MetricsLabels labels_;
  std::unique_ptr<Families> families_;
};

}  // namespace quire::engine
