#include "eval/kv_variant.h"

#include <algorithm>

namespace quire::eval {
namespace {

Result<kvstore::KvLayout> LayoutOf(const kvstore::KvFormat& format,
                                   const engine::LoadedModel& model) {
  return kvstore::KvLayout::Create(model::KvGeometryOf(model.config()), format);
}

}  // namespace

Result<KvCost> CostOf(const kvstore::KvFormat& format, const engine::LoadedModel& model) {
  QUIRE_ASSIGN_OR_RETURN(const kvstore::KvLayout layout, LayoutOf(format, model));
  const double values = 2.0 * layout.layers() * layout.kv_heads() * layout.head_dim();
  return KvCost{layout.bytes_per_token(), 8.0 * layout.bytes_per_token() / values};
}

Result<engine::EngineOptions> EngineOptionsFor(std::span<const KvVariant> variants,
                                               const Workload& workload,
                                               const engine::LoadedModel& model) {
  engine::EngineOptions options;
  options.kv_format = variants.front().format;
  QUIRE_ASSIGN_OR_RETURN(const kvstore::KvLayout layout, LayoutOf(options.kv_format, model));
  int length = workload.tokens;
  for (const KvVariant& variant : variants) {
    if (!variant.eviction.options.evicts()) continue;
    const kv::EvictionRule rule =
        kv::RuleFor(variant.eviction.options, workload.prompt,
                    {.residual_tokens = layout.residual_tokens(), .sinks = layout.sink_tokens()});
    length = std::max(length, rule.slots_max());
  }
  const int context = model.config().context_length;
  options.max_model_len = std::min(length, context);
  // A prompt and its survivors are held together: of as many sequences as memory allows, but of one
  // at least.
  options.max_num_seqs = 2 * workload.sequences;
  const int frames_least =
      2 * kv::KvCache::FramesForSequence(layout.CacheOptions(1), *options.max_model_len, 1);
  options.kv_cache_memory = std::max(engine::DefaultKvCacheMemory(layout, options, context),
                                     static_cast<size_t>(frames_least) * layout.frame_bytes());
  options.max_num_seqs = workload.sequences;
  return options;
}

KvVariant Reference(kvstore::KvFormat format) {
  return {"f32",
          kvstore::KvFormat{kernels::KvCodec::kF32, kernels::KvCodec::kF32, format.block_size}};
}

}  // namespace quire::eval
