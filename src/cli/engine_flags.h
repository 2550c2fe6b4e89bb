// The flags of every command that runs a model: which model, how its KV cache is kept, how steps
// are batched. Declared once, named as in vLLM.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/flags.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "cli/default_model.h"
#include "cli/eviction_flags.h"
#include "cli/kv_format_flags.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "engine/engine_options.h"

namespace quire::cli {

// A model with its threads and, for commands that generate, its engine. Members are destroyed in
// the reverse order, as each borrows from those above it.
struct RunningModel {
  std::unique_ptr<base::ThreadTeam> team;
  std::unique_ptr<engine::LoadedModel> model;
  std::unique_ptr<engine::LoadedModel> draft_model;  // with --draft-model
  std::unique_ptr<engine::Engine> engine;
};

class EngineFlags {
 public:
  void DeclareModel(base::FlagSet& flags) { model_.Declare(flags); }
  // Threads and the KV cache's format, and the latter alone.
  void DeclareCompute(base::FlagSet& flags);
  void DeclareKvFormat(base::FlagSet& flags) { kv_format_.Declare(flags); }
  // What holds for every codec: DeclareKvFormat without the codec itself.
  void DeclareKvBlocks(base::FlagSet& flags) { kv_format_.DeclareForEveryCodec(flags); }
  void DeclareThreads(base::FlagSet& flags);
  // Memory, lengths, batching, speculation.
  void DeclareServing(base::FlagSet& flags);

  // Loads a model (with a progress bar on a terminal).
  Result<RunningModel> LoadModel(const std::string& path, const Terminal& terminal) const;
  // Loads the model that was named, or the default, and makes its engine.
  Result<RunningModel> StartEngine(const Terminal& terminal) const;

  // How many requests may wait; the rest is refused.
  void SetMaxQueuedRequests(int count) { max_queued_requests_ = count; }

  bool model_named() const { return model_.named(); }
  Result<std::string> model_path() const { return model_.Path(); }
  Result<kvstore::KvFormat> kv_format() const { return kv_format_.Format(); }
  uint64_t seed() const { return seed_; }
  Result<engine::EngineOptions> Options() const;

 private:
  void DeclareSpeculation(base::FlagSet& flags);
  Result<engine::SpeculationOptions> Speculation() const;
  Result<std::unique_ptr<engine::LoadedModel>> Load(const std::string& path, const char* label,
                                                    base::ThreadTeam& team,
                                                    const Terminal& terminal) const;

  ModelFlag model_;
  int threads_ = 0;
  KvFormatFlags kv_format_;
  EvictionFlags eviction_;
  std::optional<base::ByteSize> kv_cache_memory_;
  std::optional<int> max_model_len_;
  int max_num_seqs_ = 64;
  int max_num_batched_tokens_ = 512;
  bool enable_prefix_caching_ = true;
  uint64_t seed_ = 0;
  std::optional<int> max_queued_requests_;
  std::string draft_model_;
  std::string speculate_;
  std::string num_speculative_tokens_ = "auto";
};

}  // namespace quire::cli
