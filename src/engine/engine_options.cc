#include "engine/engine_options.h"

#include <algorithm>
#include <thread>

#include <sched.h>
#include <unistd.h>

namespace quire::engine {

kvstore::KvGeometry KvGeometryOf(const model::ModelConfig& config) {
  return {config.kv_heads, config.head_dim, config.sliding_windows};
}

size_t DefaultKvCacheMemory(const kvstore::KvLayout& layout, const EngineOptions& options,
                            int context_length) {
  const int64_t frames_wanted =
      layout.frames_for_tokens(options.max_model_len.value_or(context_length)) *
      options.max_num_seqs;
  const size_t available =
      static_cast<size_t>(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  const int64_t frames_possible = static_cast<int64_t>(available / 4 / layout.frame_bytes());
  const int64_t frames =
      std::max<int64_t>(std::min(frames_wanted, frames_possible), layout.group_count());
  return static_cast<size_t>(frames) * layout.frame_bytes();
}

int ThreadCount(const EngineOptions& options) {
  if (options.threads > 0) return options.threads;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace quire::engine
