// The architectures that the forward pass computes, and what sets each apart, as data. Used by the
// readers of GGUF metadata and of config.json, and by the writer of made models.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/model_config.h"

namespace quire::model {

// Which layers see only a window, in a model that has one.
enum class WindowRule {
  kEveryLayer,
  kEvenLayers,  // gemma2: layers 0, 2, 4, ...
  kFromLayer,   // qwen2, qwen3: only if use_sliding_window, from layer max_window_layers on
};

struct Architecture {
  std::string_view name;      // general.architecture of GGUF, model_type of config.json
  std::string_view hf_class;  // `architectures` of config.json
  RopePairing gguf_pairing = RopePairing::kHalves;
  WindowRule windows = WindowRule::kEveryLayer;
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;  // always has one; others may by config.json or by the tensors present
  bool qk_norm = false;
  bool is_gemma = false;  // post-norms, scaled embeddings, norm weights stored minus one
  bool tied_by_default = false;
  int default_head_dim = 0;  // 0: hidden_size / heads
};

std::span<const Architecture> Architectures();

// By GGUF name or by class; kUnsupported with the supported ones named.
Result<const Architecture*> FindArchitecture(std::string_view name);
Result<const Architecture*> FindHfArchitecture(std::string_view hf_class);

// The window of every layer: `window` (0: none) where the rule puts it. One that the context never
// reaches is none.
struct WindowPlan {
  int window = 0;
  int first_layer = 0;  // kFromLayer
};
std::vector<int> WindowsOf(const Architecture& architecture, const ModelConfig& config,
                           WindowPlan plan);

}  // namespace quire::model
