#include "engine/metrics.h"

#include <algorithm>
#include <array>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace quire::engine {
namespace {

using prometheus::ClientMetric;
using prometheus::Counter;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = Histogram::BucketBoundaries;

// The boundaries that vLLM's dashboards expect.
const Buckets kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                    0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                    20,    40,    80,   160,  640,  2560};
const Buckets kTokenBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                               0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Buckets kRequestBuckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Buckets kLengthBuckets = {1,   2,    5,    10,   20,    50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

constexpr std::array kReasons = {std::pair(sched::FinishReason::kStop, "stop"),
                                 std::pair(sched::FinishReason::kLength, "length"),
                                 std::pair(sched::FinishReason::kCancelled, "abort"),
                                 std::pair(sched::FinishReason::kError, "error")};

// A histogram under our name and under vLLM's.
class Twin {
 public:
  struct Names {
    const char* ours;
    const char* vllm;
    const char* help;
  };
  Twin(prometheus::Registry& registry, const prometheus::Labels& labels, const Names& names,
       const Buckets& buckets)
      : ours_(Add(registry, labels, std::string("quire_") + names.ours, names.help, buckets)),
        theirs_(Add(registry, labels, std::string("vllm:") + names.vllm, names.help, buckets)) {}
  void Observe(double value) {
    ours_.Observe(value);
    theirs_.Observe(value);
  }

 private:
  static Histogram& Add(prometheus::Registry& registry, const prometheus::Labels& labels,
                        const std::string& name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }
  Histogram& ours_;
  Histogram& theirs_;
};

// The families that a snapshot gives.
class SnapshotText {
 public:
  explicit SnapshotText(const MetricsLabels& labels) : labels_(labels) {}

  // A value under our name and, if vLLM has it, under theirs.
  void Add(MetricType type, std::string name, const char* help, double value) {
    MetricFamily family{std::move(name), help, type, {ClientMetric()}};
    ClientMetric& metric = family.metric.front();
    metric.label = {{"model_name", labels_.model}};
    metric.counter.value = metric.gauge.value = value;
    families_.push_back(std::move(family));
  }
  void Gauge(std::string name, const char* help, double value) {
    Add(MetricType::Gauge, std::move(name), help, value);
  }
  void Count(std::string name, const char* help, int64_t value) {
    Add(MetricType::Counter, std::move(name), help, static_cast<double>(value));
  }
  std::vector<MetricFamily>& families() { return families_; }

 private:
  const MetricsLabels& labels_;
  std::vector<MetricFamily> families_;
};

void AddCache(SnapshotText& text, const kv::KvStats& cache) {
  text.Gauge("quire_kv_frames", "Frames of KV memory.", cache.frames_total);
  text.Gauge("quire_kv_frames_free", "Frames that hold nothing.", cache.frames_free);
  text.Gauge("quire_kv_frames_cached", "Frames kept for later requests.", cache.frames_cached);
  text.Gauge("quire_kv_frames_leased", "Frames held by sequences.", cache.frames_leased);
  text.Gauge("quire_kv_waste_bytes", "Room for tokens in leased frames that hold none.",
             static_cast<double>(cache.waste_bytes));
  text.Count("quire_kv_frames_evicted_total", "Cached frames given to others.",
             cache.frames_evicted);
  text.Count("quire_kv_forks_total", "Leases made from others, sharing their blocks.", cache.forks);
  text.Count("quire_kv_copies_total", "Frames copied before a write.", cache.copies);
  const double usage =
      cache.frames_total == 0 ? 0.0 : static_cast<double>(cache.frames_leased) / cache.frames_total;
  for (const char* name :
       {"quire_kv_usage_ratio", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {
    text.Gauge(name, "Share of KV memory held by sequences; 1 is all of it.", usage);
  }
}

void AddScheduler(SnapshotText& text, const sched::SchedulerStats& s) {
  const auto gauges = [&](const char* ours, const char* theirs, const char* help, double value) {
    text.Gauge(ours, help, value);
    text.Gauge(theirs, help, value);
  };
  const auto counts = [&](const char* ours, const char* theirs, const char* help, int64_t value) {
    text.Count(ours, help, value);
    text.Count(theirs, help, value);
  };
  gauges("quire_requests_running", "vllm:num_requests_running", "Requests being computed.",
         s.requests_running);
  gauges("quire_requests_waiting", "vllm:num_requests_waiting", "Requests in the queue.",
         s.requests_waiting);
  counts("quire_preemptions_total", "vllm:num_preemptions_total",
         "Sequences that lost their memory and computed again.", s.preemptions);
  text.Count("quire_kv_tokens_evicted_total",
             "Tokens whose keys and values evicting sequences gave up.", s.evicted_tokens);
  counts("quire_prefix_tokens_queried_total", "vllm:prefix_cache_queries_total",
         "Prompt tokens looked up in the prefix cache.", s.prompt_tokens_queried);
  counts("quire_prefix_tokens_hit_total", "vllm:prefix_cache_hits_total",
         "Prompt tokens found in the prefix cache.", s.prompt_tokens_hit);
  text.Count("quire_requests_submitted_total", "Requests queued.", s.requests_submitted);
  text.Count("quire_steps_total", "Forward passes.", s.steps);
  text.Count("quire_steps_mixed_total", "Forward passes with prefill and decode.", s.steps_mixed);
  text.Count("quire_prefill_tokens_total", "Tokens computed in prefill chunks.", s.prefill_tokens);
  text.Count("quire_decode_tokens_total", "Tokens computed one by one.", s.decode_tokens);
  text.Count("quire_recomputed_tokens_total", "Of these, again after a preemption.",
             s.recomputed_tokens);
}

void AddTimes(SnapshotText& text, const EngineStats& engine) {
  const auto seconds = [&](const char* name, const char* help, double value) {
    text.Add(MetricType::Counter, name, help, value);
  };
  seconds("quire_schedule_seconds_total", "Time spent deciding.", engine.schedule_s);
  seconds("quire_forward_seconds_total", "Time spent in forward passes.", engine.forward_s);
  seconds("quire_sample_seconds_total", "Time spent drawing tokens.", engine.sample_s);
  seconds("quire_emit_seconds_total", "Time spent on text and bookkeeping.", engine.emit_s);
}

void AddSpeculation(SnapshotText& text, const SpeculationStats& s) {
  const auto counts = [&](const char* ours, const char* theirs, const char* help, int64_t value) {
    text.Count(ours, help, value);
    text.Count(theirs, help, value);
  };
  counts("quire_drafts_total", "vllm:spec_decode_num_drafts_total",
         "Runs of drafted tokens that were verified.", s.drafts);
  counts("quire_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total",
         "Drafted tokens that were verified.", s.draft_tokens);
  counts("quire_draft_tokens_accepted_total", "vllm:spec_decode_num_accepted_tokens_total",
         "Of these, those that were what the model said.", s.accepted_tokens);
  for (const char* name : {"quire_draft_tokens_accepted_by_position_total",
                           "vllm:spec_decode_num_accepted_tokens_per_pos_total"}) {
    text.Count(name, "The same by their place in the draft, from 0; the last counts all beyond.",
               s.accepted_at[0]);
    MetricFamily& family = text.families().back();
    const ClientMetric first = family.metric.front();
    for (int i = 0; i < SpeculationStats::kPositions; ++i) {
      if (i > 0) family.metric.push_back(first);
      family.metric.back().counter.value = static_cast<double>(s.accepted_at[i]);
      family.metric.back().label.push_back({"position", std::to_string(i)});
    }
  }
  text.Add(MetricType::Counter, "quire_draft_seconds_total", "Time spent on drafting.",
           s.propose_s);
}

}  // namespace

struct Metrics::Families {
  explicit Families(const MetricsLabels& labels) : all{{"model_name", labels.model}} {
    for (size_t i = 0; i < kReasons.size(); ++i) {
      prometheus::Labels with_reason = all;
      with_reason["finished_reason"] = kReasons[i].second;
      finished[i] = {&success.Add(with_reason), &vllm_success.Add(with_reason)};
    }
  }

  prometheus::Registry registry;
  prometheus::Labels all;
  Twin first_token{registry,
                   all,
                   {"time_to_first_token_seconds", "time_to_first_token_seconds",
                    "From arrival to the first token."},
                   kFirstTokenBuckets};
  Twin token{registry,
             all,
             {"inter_token_latency_seconds", "inter_token_latency_seconds",
              "Between two tokens of a sequence."},
             kTokenBuckets};
  Twin e2e{
      registry,
      all,
      {"request_latency_seconds", "e2e_request_latency_seconds", "From arrival to the last token."},
      kRequestBuckets};
  Twin queue{
      registry,
      all,
      {"request_queue_seconds", "request_queue_time_seconds", "From arrival to the first step."},
      kRequestBuckets};
  Twin prefill{registry,
               all,
               {"request_prefill_seconds", "request_prefill_time_seconds",
                "From the first step to the first token."},
               kRequestBuckets};
  Twin decode{registry,
              all,
              {"request_decode_seconds", "request_decode_time_seconds",
               "From the first token to the last."},
              kRequestBuckets};
  Twin prompt_length{
      registry,
      all,
      {"request_prompt_length_tokens", "request_prompt_tokens", "Tokens of a prompt."},
      kLengthBuckets};
  Twin output_length{
      registry,
      all,
      {"request_output_length_tokens", "request_generation_tokens", "Tokens of an answer."},
      kLengthBuckets};

  Counter& AddCounter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(all);
  }
  Counter& prompt_tokens = AddCounter("quire_prompt_tokens_total", "Prompt tokens answered.");
  Counter& vllm_prompt_tokens = AddCounter("vllm:prompt_tokens_total", "Prompt tokens answered.");
  Counter& generation_tokens = AddCounter("quire_generation_tokens_total", "Tokens generated.");
  Counter& vllm_generation_tokens = AddCounter("vllm:generation_tokens_total", "Tokens generated.");
  Counter& refused = AddCounter("quire_requests_refused_total", "Requests that cannot be served.");

  prometheus::Family<Counter>& success = prometheus::BuildCounter()
                                             .Name("quire_requests_finished_total")
                                             .Help("Requests ended, by reason.")
                                             .Register(registry);
  prometheus::Family<Counter>& vllm_success = prometheus::BuildCounter()
                                                  .Name("vllm:request_success_total")
                                                  .Help("Requests ended, by reason.")
                                                  .Register(registry);
  std::array<std::pair<Counter*, Counter*>, kReasons.size()> finished;
};

Metrics::Metrics(MetricsLabels labels)
    : labels_(std::move(labels)), families_(std::make_unique<Families>(labels_)) {}

Metrics::~Metrics() = default;

void Metrics::Generated(RequestTimes& times, int index, int tokens, double now) {
  if (tokens == 0) return;
  if (!times.first_token_s) {
    times.first_token_s = now;
    families_->first_token.Observe(now - times.posted_s);
    families_->prompt_tokens.Increment(times.prompt_tokens);
    families_->vllm_prompt_tokens.Increment(times.prompt_tokens);
  }
  const auto sequence = static_cast<size_t>(index);
  if (times.last_token_s.size() <= sequence) times.last_token_s.resize(sequence + 1, 0.0);
  // Text held back for a stop string or half a character arrives together.
  if (times.last_token_s[sequence] > 0.0) {
    const double each = (now - times.last_token_s[sequence]) / tokens;
    for (int i = 0; i < tokens; ++i) families_->token.Observe(each);
  }
  times.last_token_s[sequence] = now;
  times.generated_tokens += tokens;
  families_->generation_tokens.Increment(tokens);
  families_->vllm_generation_tokens.Increment(tokens);
}

void Metrics::Finished(sched::FinishReason reason, const RequestTimes& times, double now) {
  for (size_t i = 0; i < kReasons.size(); ++i) {
    if (kReasons[i].first != reason) continue;
    families_->finished[i].first->Increment();
    families_->finished[i].second->Increment();
  }
  families_->e2e.Observe(now - times.posted_s);
  families_->prompt_length.Observe(times.prompt_tokens);
  families_->output_length.Observe(times.generated_tokens);
  if (!times.admitted_s) return;
  families_->queue.Observe(*times.admitted_s - times.posted_s);
  if (!times.first_token_s) return;
  families_->prefill.Observe(*times.first_token_s - *times.admitted_s);
  families_->decode.Observe(now - *times.first_token_s);
}

void Metrics::Refused() {
  families_->refused.Increment();
}

std::string Metrics::Text(const EngineSnapshot& snapshot) const {
  SnapshotText text(labels_);
  AddCache(text, snapshot.cache);
  AddScheduler(text, snapshot.scheduler);
  AddTimes(text, snapshot.engine);
  if (labels_.speculation) AddSpeculation(text, snapshot.speculation);
  text.Gauge("vllm:cache_config_info", "How the KV cache is configured.", 1);
  ClientMetric& info = text.families().back().metric.front();
  info.label.push_back({"block_size", std::to_string(labels_.block_tokens)});
  info.label.push_back({"cache_dtype", labels_.codec});
  info.label.push_back({"enable_prefix_caching", labels_.prefix_caching ? "True" : "False"});
  info.label.push_back({"num_gpu_blocks", std::to_string(snapshot.cache.frames_total)});
  std::vector<MetricFamily> families = families_->registry.Collect();
  std::ranges::move(text.families(), std::back_inserter(families));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire::engine
