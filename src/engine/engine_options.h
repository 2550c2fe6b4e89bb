// EngineOptions: what an operator can set about memory, batching and threads. Names follow vLLM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvstore/kv_layout.h"
#include "model/model_config.h"
#include "sched/scheduler.h"

namespace quire::engine {

class LoadedModel;

// How tokens are guessed ahead (docs/SPECULATION.md).
enum class DraftMethod {
  kNgram,   // what followed the last few tokens when they came before
  kSuffix,  // what most often followed the longest ending that came before
};

// How a draft model's token is chosen for requests that sample.
enum class DraftChoice {
  kBest,  // the likeliest
  kDrawn  // drawn with the key that the target will draw with: more often the same
};

// Whether finished outputs are looked through for later requests of the same salt.
enum class OutputSharing { kOff, kSameSalt };

struct SpeculationOptions {
  static constexpr int kTokensMax = 32;

  std::vector<DraftMethod> methods = {};     // the first that has an idea drafts
  const LoadedModel* draft_model = nullptr;  // drafts where they have none; outlives the engine
  std::optional<int> tokens = std::nullopt;  // drafted at once; absent: as many as pay
  OutputSharing sharing = OutputSharing::kSameSalt;
  DraftChoice draft_choice = DraftChoice::kDrawn;

  bool enabled() const { return !methods.empty() || draft_model != nullptr; }
};

struct EngineOptions {
  std::optional<int> max_model_len;       // tokens of the longest sequence; absent: what fits
  int max_num_seqs = 64;                  // sequences computed together
  int max_num_batched_tokens = 512;       // tokens per step
  kvstore::KvFormat kv_format;            // codec and block size
  std::optional<size_t> kv_cache_memory;  // bytes; absent: derived from the model and the machine
  bool enable_prefix_caching = true;
  kv::EvictionOptions eviction;            // for requests that do not say
  int threads = 0;                         // 0: one per core
  uint64_t seed = 0;                       // for requests that bring none
  std::optional<int> max_queued_requests;  // more are refused; absent: the scheduler's own limit
  // Seconds of a step after which no further grammar's mask is begun. Those of usual grammars take
  // tens of microseconds; one request's hard ones must not hold up what others are waiting for.
  double mask_budget_s = 2e-3;
  SpeculationOptions speculation;
};

// Memory of the machine that nobody uses now.
size_t AvailableMemoryBytes();

// The KV memory that serves `max_num_seqs` sequences of the model's full context, but at most a
// quarter of the machine's available memory (and always enough for one residual group).
size_t DefaultKvCacheMemory(const kvstore::KvLayout& layout, const EngineOptions& options,
                            int context_length);

// How an engine with these options schedules and keeps its `frames` frames of KV memory; `layout`
// is of the model's geometry. kUsage, with sizes, where the combination cannot work.
struct ControlPlane {
  sched::SchedulerOptions scheduler;
  kv::KvCacheOptions cache;
};
Result<ControlPlane> ControlPlaneFor(const EngineOptions& options, const model::ModelConfig& config,
                                     const kvstore::KvLayout& layout, int frames);

// Threads to compute with: options.threads, else the cores this process may use.
int ThreadCount(const EngineOptions& options);

}  // namespace quire::engine
