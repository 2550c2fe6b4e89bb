#include "engine/engine_options.h"

#include <algorithm>
#include <random>
#include <thread>

#include <sched.h>
#include <unistd.h>

namespace quire::engine {

size_t AvailableMemoryBytes() {
  return static_cast<size_t>(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

size_t DefaultKvCacheMemory(const kvstore::KvLayout& layout, const EngineOptions& options,
                            int context_length) {
  // A tail costs more than what it becomes: a short sequence, one residual group and a token, must
  // fit as it grows.
  const int shortest = std::min(context_length, layout.residual_tokens() + 1);
  const int64_t frames_least = kv::KvCache::FramesForSequence(layout.CacheOptions(1), shortest, 1);
  const int64_t frames_wanted =
      layout.frames_for_tokens(options.max_model_len.value_or(context_length)) *
      options.max_num_seqs;
  const int64_t frames_possible =
      static_cast<int64_t>(AvailableMemoryBytes() / 4 / layout.frame_bytes());
  const int64_t frames = std::max<int64_t>(std::min(frames_wanted, frames_possible), frames_least);
  return static_cast<size_t>(frames) * layout.frame_bytes();
}

Result<ControlPlane> ControlPlaneFor(const EngineOptions& options, const model::ModelConfig& config,
                                     const kvstore::KvLayout& layout, int frames) {
  ControlPlane control;
  control.cache = layout.CacheOptions(frames);
  control.cache.prefix_caching =
      options.enable_prefix_caching ? kv::PrefixCaching::kOn : kv::PrefixCaching::kOff;
  // Finds candidates only: no answer depends on it, and no client can aim at it.
  std::random_device entropy;
  control.cache.hash_key = (uint64_t{entropy()} << 32) | entropy();

  control.scheduler.max_num_seqs = options.max_num_seqs;
  control.scheduler.max_num_batched_tokens = options.max_num_batched_tokens;
  control.scheduler.eos_ids = config.eos_ids;
  if (options.max_queued_requests) control.scheduler.max_waiting = *options.max_queued_requests;
  if (options.max_model_len && *options.max_model_len > config.context_length) {
    return Error{ErrorKind::kUsage,
                 fmt::format("--max-model-len is {} tokens, but the model was made for at most {}",
                             *options.max_model_len, config.context_length),
                 "max-model-len"};
  }
  // A limit nobody asked for is what the memory can hold, up to what the model was made for.
  kv::KvCacheOptions probe = control.cache;
  probe.max_lease_tokens = config.context_length;
  control.scheduler.max_model_len = options.max_model_len.value_or(
      kv::KvCache::MaxSequenceTokens(probe, options.max_num_batched_tokens));
  control.scheduler.sink_tokens = layout.sink_tokens();
  QUIRE_RETURN_IF_ERROR(sched::Scheduler::Validate(control.scheduler, control.cache));
  QUIRE_RETURN_IF_ERROR(
      sched::Scheduler::ValidateEviction(options.eviction, control.scheduler, control.cache));
  return control;
}

int ThreadCount(const EngineOptions& options) {
  if (options.threads > 0) return options.threads;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace quire::engine
