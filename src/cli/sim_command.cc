// quire sim: replays requests against scheduler and cache, without a model, on a clock that a cost
// model turns: for sizes that no machine at hand has.
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include <boost/json/object.hpp>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/progress_bar.h"
#include "cli/trace_file.h"
#include "model/random_model.h"
#include "planner/step_cost.h"
#include "sched/simulator.h"

namespace quire::cli {
namespace {

using boost::json::object;

object ToJson(const sched::Percentiles& values) {
  return {{"p50", values.p50}, {"p90", values.p90}, {"p99", values.p99}, {"max", values.max}};
}

object ToJson(const sched::SimulationReport& report) {
  const sched::SchedulerStats& scheduler = report.scheduler;
  const kv::KvStats& cache = report.cache;
  return {
      {"requests", report.requests},
      {"requests_finished", report.requests_finished},
      {"requests_refused", report.requests_refused},
      {"output_tokens", report.output_tokens},
      {"steps", report.steps},
      {"duration_s", report.duration_s},
      {"output_tokens_per_s", report.output_tokens_per_s},
      {"ttft_s", ToJson(report.ttft_s)},
      {"tpot_s", ToJson(report.tpot_s)},
      {"latency_s", ToJson(report.latency_s)},
      {"kv_usage_mean", report.usage_mean},
      {"kv_usage_max", report.usage_max},
      {"kv_waste_mean", report.waste_mean},
      {"hit_rate", report.hit_rate},
      {"hit_rate_best", report.hit_rate_best},
      {"sequences_per_step", report.batch_mean},
      {"prompt_tokens_queried", scheduler.prompt_tokens_queried},
      {"prompt_tokens_hit", scheduler.prompt_tokens_hit},
      {"prefill_tokens", scheduler.prefill_tokens},
      {"decode_tokens", scheduler.decode_tokens},
      {"steps_mixed", scheduler.steps_mixed},
      {"preemptions", scheduler.preemptions},
      {"recomputed_tokens", scheduler.recomputed_tokens},
      {"prefix_waits", scheduler.prefix_waits},
      {"overtakes_max", scheduler.overtakes_max},
      {"frames", cache.frames_total},
      {"frames_published", cache.frames_published},
      {"frames_evicted", cache.frames_evicted},
      {"forks", cache.forks},
      {"copies", cache.copies},
  };
}

// Seconds in a unit that people read.
std::string Seconds(double s) {
  if (s >= 100.0) return fmt::format("{:.0f} s", s);
  if (s >= 1.0) return fmt::format("{:.2f} s", s);
  return fmt::format("{:.1f} ms", s * 1e3);
}

std::string AsText(const sched::SimulationReport& report, const Terminal& terminal) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += terminal.Out(Style::kBold, fmt::format("{:<12}", label)) + value + "\n";
  };
  const auto percentiles = [&](std::string_view label, const sched::Percentiles& values) {
    line(label, fmt::format("p50 {}, p90 {}, p99 {}, max {}", Seconds(values.p50),
                            Seconds(values.p90), Seconds(values.p99), Seconds(values.max)));
  };
  line("requests", fmt::format("{} finished, {} refused, in {}", report.requests_finished,
                               report.requests_refused, Seconds(report.duration_s)));
  line("throughput", fmt::format("{:.1f} output tokens/s, {:.1f} sequences per step",
                                 report.output_tokens_per_s, report.batch_mean));
  percentiles("TTFT", report.ttft_s);
  percentiles("TPOT", report.tpot_s);
  percentiles("latency", report.latency_s);
  line("KV usage", fmt::format("mean {:.1f} %, max {:.1f} % of {} frames; waste {:.2f} %",
                               100.0 * report.usage_mean, 100.0 * report.usage_max,
                               report.cache.frames_total, 100.0 * report.waste_mean));
  line("prefix hits",
       fmt::format("{:.1f} % of prompt tokens; a cache without limits finds {:.1f} %",
                   100.0 * report.hit_rate, 100.0 * report.hit_rate_best));
  line("preemptions", fmt::format("{}, {} tokens computed again", report.scheduler.preemptions,
                                  report.scheduler.recomputed_tokens));
  return text;
}

class SimCommand : public Command {
 public:
  std::string_view name() const override { return "sim"; }
  std::string_view summary() const override {
    return "Replays a trace of requests without a model: memory, prefix hits, waiting times.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("TRACE", &trace_path_,
                     "Requests, a JSON object per line; - reads stdin. Without it, --generate.");
    flags.Group("Trace");
    flags.Add("generate", &kind_, "Make up requests of a kind.")
        .OneOf({"chat", "agents", "retrieval", "batch", "adversarial"});
    flags.Add("requests", &generator_.requests, "How many requests to make up.")
        .Range(1, 10'000'000);
    flags
        .Add("request-rate", &generator_.requests_per_s,
             "Conversations, runs or requests that begin per second.")
        .Range(1e-6, 1e6);
    flags.Add("trace-seed", &generator_.seed, "The same seed makes up the same requests.");
    flags.Add("save", &save_path_, "Also write the made-up trace to this file.").Metavar("FILE");
    flags.Group("Model and machine");
    flags.Add("shape", &shape_, "The model's sizes.").OneOf(model::ShapeNames());
    flags.Add("weight-type", &weight_type_, "Type of the model's matrices.")
        .OneOf({"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"});
    flags.Add("bandwidth", &bandwidth_gb_s_, "Memory that the machine reads.")
        .Unit("GB/s")
        .Range(0.01, 1e6);
    flags.Add("gflops", &gflops_, "Arithmetic of matrix products.")
        .Unit("GFLOP/s")
        .Range(0.01, 1e9);
    engine_.DeclareKvFormat(flags);
    engine_.DeclareServing(flags);
    flags.Example("quire sim --generate agents --shape llama-3.1-8b --kv-cache-memory 16GiB",
                  "How agents with long system prompts share 16 GiB");
    flags.Example("quire sim --generate chat --kv-cache-memory 4GiB --save chat.jsonl",
                  "Keep the made-up requests: quire sim chat.jsonl replays them");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(const sched::SimulatorOptions options, Options());
    QUIRE_ASSIGN_OR_RETURN(const auto trace, Trace(options.scheduler.max_model_len));
    ProgressBar bar(
        context.terminal,
        {.label = "sim", .total = static_cast<int64_t>(trace.size()), .unit = "requests"});
    QUIRE_ASSIGN_OR_RETURN(
        const sched::SimulationReport report,
        sched::Simulate(options, trace, [&](int64_t finished) { bar.Update(finished); }));
    if (context.json) return WriteJson(ToJson(report));
    return WriteOut(AsText(report, context.terminal));
  }

 private:
  Result<sched::SimulatorOptions> Options() const {
    QUIRE_ASSIGN_OR_RETURN(const engine::EngineOptions engine, engine_.Options());
    QUIRE_ASSIGN_OR_RETURN(const model::ShapeSizes sizes, model::NamedShape(shape_));
    QUIRE_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ConfigOfShape(sizes));
    QUIRE_ASSIGN_OR_RETURN(
        const kvstore::KvLayout layout,
        kvstore::KvLayout::Create(model::KvGeometryOf(config), engine.kv_format));
    if (!engine.kv_cache_memory) {
      return Error{ErrorKind::kUsage, "say how much KV memory the machine has: --kv-cache-memory",
                   "kv-cache-memory"};
    }
    sched::SimulatorOptions options;
    QUIRE_ASSIGN_OR_RETURN(const int frames, layout.FramesIn(*engine.kv_cache_memory));
    QUIRE_ASSIGN_OR_RETURN(engine::ControlPlane control,
                           engine::ControlPlaneFor(engine, config, layout, frames));
    options.scheduler = std::move(control.scheduler);
    options.cache = std::move(control.cache);
    options.cost = planner::StepCost(
        config, *DTypeNamed(weight_type_), layout,
        {.bandwidth_bytes_per_s = bandwidth_gb_s_ * 1e9, .flops_per_s = gflops_ * 1e9});
    return options;
  }

  Result<std::vector<sched::TraceRequest>> Trace(int max_model_len) const {
    if (trace_path_.empty() == kind_.empty()) {
      return Error{ErrorKind::kUsage, "give a file of requests, or --generate KIND to make some up",
                   "TRACE"};
    }
    if (!trace_path_.empty()) {
      if (!save_path_.empty()) {
        return Error{ErrorKind::kUsage, "--save keeps made-up requests; it needs --generate",
                     "save"};
      }
      QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(trace_path_));
      return ParseTrace(text, trace_path_);
    }
    sched::TraceOptions generator = generator_;
    QUIRE_ASSIGN_OR_RETURN(generator.kind, sched::ParseTraceKind(kind_));
    generator.max_total_tokens = max_model_len;
    std::vector<sched::TraceRequest> trace = sched::MakeTrace(generator);
    if (!save_path_.empty()) {
      std::ofstream out(save_path_, std::ios::binary);
      out << FormatTrace(trace);
      out.flush();
      if (!out) return MakeError(ErrorKind::kIo, "cannot write '{}'", save_path_);
    }
    return trace;
  }

  EngineFlags engine_;
  std::string trace_path_;
  std::string kind_;
  std::string save_path_;
  sched::TraceOptions generator_;
  std::string shape_ = "llama-3.1-8b";
  std::string weight_type_ = "Q8_0";
  double bandwidth_gb_s_ = 40.0;
  double gflops_ = 400.0;
};

}  // namespace

std::unique_ptr<Command> MakeSimCommand() {
  return std::make_unique<SimCommand>();
}

}  // namespace quire::cli
