#include "eval/kv_variant.h"

namespace quire::eval {

Result<KvCost> CostOf(const kvstore::KvFormat& format, const engine::LoadedModel& model) {
  const model::ModelConfig& config = model.config();
  QUIRE_ASSIGN_OR_RETURN(const kvstore::KvLayout layout,
                         kvstore::KvLayout::Create(model::KvGeometryOf(config), format));
  const double values = 2.0 * layout.layers() * layout.kv_heads() * layout.head_dim();
  return KvCost{layout.bytes_per_token(), 8.0 * layout.bytes_per_token() / values};
}

KvVariant Reference(kvstore::KvFormat format) {
  return {"f32",
          kvstore::KvFormat{kernels::KvCodec::kF32, kernels::KvCodec::kF32, format.block_size}};
}

}  // namespace quire::eval
