#include "cli/engine_flags.h"

#include <utility>

#include "cli/progress_bar.h"

namespace quire::cli {

void EngineFlags::DeclareCompute(base::FlagSet& flags) {
  DeclareThreads(flags);
  DeclareKvFormat(flags);
}

void EngineFlags::DeclareThreads(base::FlagSet& flags) {
  flags.Group("Computing");
  flags.Add("threads", &threads_, "Threads to compute with; 0: one per core.").Range(0, 1024);
}

void EngineFlags::DeclareServing(base::FlagSet& flags) {
  flags
      .Add(
          "kv-cache-memory", &kv_cache_memory_,
          "KV memory; by default what the model's context needs, at most a quarter of free memory.")
      .Metavar("SIZE");
  flags.Add("enable-prefix-caching", &enable_prefix_caching_,
            "Keep computed prefixes for later requests that share them.");
  eviction_.Declare(flags);
  flags.Group("Batching");
  flags
      .Add("max-model-len", &max_model_len_,
           "Longest sequence, prompt and output; by default the model's context, or what fits.")
      .Unit("tokens")
      .AtLeast(1);
  flags.Add("max-num-seqs", &max_num_seqs_, "Most sequences computed together.").Range(1, 4096);
  flags.Add("max-num-batched-tokens", &max_num_batched_tokens_, "Most tokens of one step.")
      .Unit("tokens")
      .Range(1, 65536);
  flags.Add("seed", &seed_, "Randomness of requests that bring no seed of their own.");
}

Result<engine::EngineOptions> EngineFlags::Options() const {
  engine::EngineOptions options;
  options.max_model_len = max_model_len_;
  options.max_num_seqs = max_num_seqs_;
  options.max_num_batched_tokens = max_num_batched_tokens_;
  QUIRE_ASSIGN_OR_RETURN(options.kv_format, kv_format());
  if (kv_cache_memory_) options.kv_cache_memory = static_cast<size_t>(kv_cache_memory_->bytes);
  QUIRE_ASSIGN_OR_RETURN(options.eviction, eviction_.Options());
  options.enable_prefix_caching = enable_prefix_caching_;
  options.threads = threads_;
  options.seed = seed_;
  options.max_queued_requests = max_queued_requests_;
  return options;
}

Result<RunningModel> EngineFlags::LoadModel(const std::string& path,
                                            const Terminal& terminal) const {
  QUIRE_ASSIGN_OR_RETURN(const engine::EngineOptions options, Options());
  RunningModel running;
  running.team = std::make_unique<base::ThreadTeam>(engine::ThreadCount(options));
  ProgressBar bar(terminal, {.label = "loading", .total = 100, .unit = "%"});
  QUIRE_ASSIGN_OR_RETURN(engine::LoadedModel model,
                         engine::LoadedModel::Load(path, *running.team, [&](double share) {
                           bar.Update(static_cast<int64_t>(share * 100));
                         }));
  running.model = std::make_unique<engine::LoadedModel>(std::move(model));
  return running;
}

Result<RunningModel> EngineFlags::StartEngine(const Terminal& terminal) const {
  QUIRE_ASSIGN_OR_RETURN(const engine::EngineOptions options, Options());
  QUIRE_ASSIGN_OR_RETURN(const std::string path, model_.Path());
  QUIRE_ASSIGN_OR_RETURN(RunningModel running, LoadModel(path, terminal));
  QUIRE_ASSIGN_OR_RETURN(running.engine,
                         engine::Engine::Create(*running.model, options, *running.team));
  return running;
}

}  // namespace quire::cli
