// KvVariant: a way to store keys and values that is under test, and what it costs. Every evaluation
// runs the same tokens through each variant and compares it with the first, which stores f32.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/model_loader.h"
#include "kvstore/kv_layout.h"

namespace quire::eval {

struct KvVariant {
  std::string name;  // as the user spelled it: "f16", "k=int8,v=int4"
  kvstore::KvFormat format;
};

// Sealed blocks, scales and padding included.
struct KvCost {
  double bytes_per_token = 0;  // over all layers and KV heads
  double bits_per_value = 0;   // of a number in a key or value
};

// kUsage or kUnsupported for a format that the model cannot have.
Result<KvCost> CostOf(const kvstore::KvFormat& format, const engine::LoadedModel& model);

// `format` with f32 keys and values in every layer: what the others are compared with.
KvVariant Reference(kvstore::KvFormat format);

}  // namespace quire::eval
