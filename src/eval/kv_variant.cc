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

Result<int> LengthFor(const KvVariant& variant, int prompt, int tokens,
                      const engine::LoadedModel& model) {
  QUIRE_ASSIGN_OR_RETURN(const kvstore::KvLayout layout, LayoutOf(variant.format, model));
  int length = tokens;
  if (variant.eviction.options.evicts()) {
    const kv::EvictionRule rule =
        kv::RuleFor(variant.eviction.options, prompt,
                    {.residual_tokens = layout.residual_tokens(), .sinks = layout.sink_tokens()});
    length = std::max(length, rule.slots_max());
  }
  return std::min(length, model.config().context_length);
}

KvVariant Reference(kvstore::KvFormat format) {
  return {"f32",
          kvstore::KvFormat{kernels::KvCodec::kF32, kernels::KvCodec::kF32, format.block_size}};
}

}  // namespace quire::eval
