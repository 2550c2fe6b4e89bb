#include "cli/engine_flags.h"

#include <algorithm>
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
  DeclareSpeculation(flags);
}

void EngineFlags::DeclareSpeculation(base::FlagSet& flags) {
  flags.Group("Speculative decoding");
  flags
      .Add("draft-model", &draft_model_,
           "A smaller model with the same tokenizer that guesses ahead: a GGUF file or directory.")
      .Metavar("PATH");
  flags
      .Add("speculate", &speculate_,
           "Guess ahead from text alone: ngram (what followed the last few tokens), suffix (what "
           "most often followed the longest ending), or both; the first that has an idea drafts.")
      .Metavar("METHOD,...");
  flags
      .Add("num-speculative-tokens", &num_speculative_tokens_,
           "Tokens guessed at once; auto: as many as pay, none where none do.")
      .Metavar("N|auto");
}

Result<engine::SpeculationOptions> EngineFlags::Speculation() const {
  engine::SpeculationOptions options;
  options.sharing =
      enable_prefix_caching_ ? engine::OutputSharing::kSameSalt : engine::OutputSharing::kOff;
  for (size_t begin = 0; begin < speculate_.size();) {
    const size_t end = std::min(speculate_.find(',', begin), speculate_.size());
    const std::string method = speculate_.substr(begin, end - begin);
    if (method != "ngram" && method != "suffix") {
      return Error{
          ErrorKind::kUsage,
          fmt::format("\"{}\" is no way to guess ahead; there are ngram and suffix", method),
          "speculate"};
    }
    options.methods.push_back(method == "ngram" ? engine::DraftMethod::kNgram
                                                : engine::DraftMethod::kSuffix);
    begin = end + 1;
  }
  if (num_speculative_tokens_ == "auto") return options;
  int tokens = 0;
  if (!base::flags_internal::ParseValue(num_speculative_tokens_, tokens) || tokens < 1 ||
      tokens > engine::SpeculationOptions::kTokensMax) {
    return Error{ErrorKind::kUsage,
                 fmt::format("\"{}\" is neither auto nor a number from 1 to {}",
                             num_speculative_tokens_, engine::SpeculationOptions::kTokensMax),
                 "num-speculative-tokens"};
  }
  options.tokens = tokens;
  return options;
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
  QUIRE_ASSIGN_OR_RETURN(options.speculation, Speculation());
  return options;
}

Result<RunningModel> EngineFlags::LoadModel(const std::string& path,
                                            const Terminal& terminal) const {
  QUIRE_ASSIGN_OR_RETURN(const engine::EngineOptions options, Options());
  RunningModel running;
  running.team = std::make_unique<base::ThreadTeam>(engine::ThreadCount(options));
  QUIRE_ASSIGN_OR_RETURN(running.model, Load(path, "loading", *running.team, terminal));
  return running;
}

Result<std::unique_ptr<engine::LoadedModel>> EngineFlags::Load(const std::string& path,
                                                               const char* label,
                                                               base::ThreadTeam& team,
                                                               const Terminal& terminal) const {
  ProgressBar bar(terminal, {.label = label, .total = 100, .unit = "%"});
  QUIRE_ASSIGN_OR_RETURN(engine::LoadedModel model,
                         engine::LoadedModel::Load(path, team, [&](double share) {
                           bar.Update(static_cast<int64_t>(share * 100));
                         }));
  return std::make_unique<engine::LoadedModel>(std::move(model));
}

Result<RunningModel> EngineFlags::StartEngine(const Terminal& terminal) const {
  QUIRE_ASSIGN_OR_RETURN(engine::EngineOptions options, Options());
  QUIRE_ASSIGN_OR_RETURN(const std::string path, model_.Path());
  QUIRE_ASSIGN_OR_RETURN(RunningModel running, LoadModel(path, terminal));
  if (!draft_model_.empty()) {
    QUIRE_ASSIGN_OR_RETURN(running.draft_model,
                           Load(draft_model_, "loading the draft", *running.team, terminal));
    options.speculation.draft_model = running.draft_model.get();
  }
  QUIRE_ASSIGN_OR_RETURN(running.engine,
                         engine::Engine::Create(*running.model, options, *running.team));
  return running;
}

}  // namespace quire::cli
