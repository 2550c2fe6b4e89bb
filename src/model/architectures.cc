#include "model/architectures.h"

namespace quire::model {

namespace {

constexpr Architecture kArchitectures[] = {
    {.name = "llama", .hf_class = "LlamaForCausalLM", .gguf_pairing = RopePairing::kAdjacent},
    {.name = "mistral", .hf_class = "MistralForCausalLM", .gguf_pairing = RopePairing::kAdjacent},
    {.name = "qwen2",
     .hf_class = "Qwen2ForCausalLM",
     .windows = WindowRule::kFromLayer,
     .qkv_bias = true},
    {.name = "qwen3",
     .hf_class = "Qwen3ForCausalLM",
     .windows = WindowRule::kFromLayer,
     .qk_norm = true,
     .default_head_dim = 128},
    {.name = "phi3", .hf_class = "Phi3ForCausalLM"},
    {.name = "gemma2",
     .hf_class = "Gemma2ForCausalLM",
     .windows = WindowRule::kEvenLayers,
     .activation = Activation::kGeluTanh,
     .is_gemma = true,
     .tied_by_default = true,
     .default_head_dim = 256},
};

Error Unsupported(std::string_view found) {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture.name;
  }
  return MakeError(ErrorKind::kUnsupported,
                   "the model's architecture is '{:.100}'; supported are {}", found, names);
}

}  // namespace

std::span<const Architecture> Architectures() {
  return kArchitectures;
}

Result<const Architecture*> FindArchitecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return Unsupported(name);
}

Result<const Architecture*> FindHfArchitecture(std::string_view hf_class) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.hf_class == hf_class) return &architecture;
  }
  return Unsupported(hf_class);
}

std::vector<int> WindowsOf(const Architecture& architecture, const ModelConfig& config,
                           WindowPlan plan) {
  std::vector<int> windows(static_cast<size_t>(config.layers), 0);
  if (plan.window <= 0 || plan.window >= config.context_length) return windows;
  for (int layer = 0; layer < config.layers; ++layer) {
    bool windowed = true;
    if (architecture.windows == WindowRule::kEvenLayers) windowed = layer % 2 == 0;
    if (architecture.windows == WindowRule::kFromLayer) windowed = layer >= plan.first_layer;
    if (windowed) windows[layer] = plan.window;
  }
  return windows;
}

}  // namespace quire::model
