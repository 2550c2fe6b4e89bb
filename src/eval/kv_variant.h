// KvVariant: a way to store keys and values that is under test, and what it costs. Every evaluation
// runs the same tokens through each variant and compares it with the first, which stores f32.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/model_loader.h"
#include "kv/eviction.h"
#include "kvstore/kv_layout.h"

namespace quire::eval {

// Which tokens keep their keys and values; by default all.
struct EvictionVariant {
  std::string budget = {};  // as the user spelled it: "0.2", "128"
  kv::EvictionOptions options = {};
};

struct KvVariant {
  std::string name;  // as the user spelled it: "f16", "k=int8,v=int4"
  kvstore::KvFormat format;
  EvictionVariant eviction = {};
};

// Sealed blocks, scales and padding included.
struct KvCost {
  double bytes_per_token = 0;  // over all layers and KV heads
  double bits_per_value = 0;   // of a number in a key or value
};

// kUsage or kUnsupported for a format that the model cannot have.
Result<KvCost> CostOf(const kvstore::KvFormat& format, const engine::LoadedModel& model);

// The sequence length that an engine must allow for sequences of up to `tokens` tokens, of which
// `prompt` are their prompt: more than `tokens` where the policy's budget is, which it then never
// fills. At most the model's context.
Result<int> LengthFor(const KvVariant& variant, int prompt, int tokens,
                      const engine::LoadedModel& model);

// `format` with f32 keys and values in every layer: what the others are compared with.
KvVariant Reference(kvstore::KvFormat format);

}  // namespace quire::eval
