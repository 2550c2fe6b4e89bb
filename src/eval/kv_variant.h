// KvVariant: a way to store keys and values that is under test, and what it costs. Every evaluation
// runs the same tokens through each variant and compares it with the first, which stores f32.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "engine/engine_options.h"
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

// What an evaluation runs at once.
struct Workload {
  int prompt = 0;     // tokens of the longest prompt
  int tokens = 0;     // and of the longest sequence
  int sequences = 1;  // computed together
};

// Options of an engine that runs the workload with each of the variants, all of one format: room
// for prompts beside what is left of them, and for budgets that are never filled.
Result<engine::EngineOptions> EngineOptionsFor(std::span<const KvVariant> variants,
                                               const Workload& workload,
                                               const engine::LoadedModel& model);

// `format` with f32 keys and values in every layer: what the others are compared with.
KvVariant Reference(kvstore::KvFormat format);

}  // namespace quire::eval
