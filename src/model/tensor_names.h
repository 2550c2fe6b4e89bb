// What files call the tensors of a model: one table for GGUF and Hugging Face names.
#pragma once

#include <string>
#include <string_view>

namespace quire::model {

enum class TensorRole {
  kTokenEmbedding,  // of the model
  kOutputNorm,
  kOutput,
  kAttentionNorm,  // of a layer, from here on
  kPostAttentionNorm,
  kFfnNorm,
  kPostFfnNorm,
  kQNorm,
  kKNorm,
  kQ,
  kK,
  kV,
  kQkv,  // Q, K and V, one below the other
  kO,
  kGate,
  kUp,
  kGateUp,  // gate and up, one below the other
  kDown,
};

enum class NameStyle {
  kGguf,
  kHf,
  kHfPostNorms,  // Hugging Face models with norms after attention and MLP name them differently
};

enum class TensorPart { kWeight, kBias };

// `layer` is ignored for the tensors of the model as a whole.
std::string TensorName(NameStyle style, TensorRole role, int layer,
                       TensorPart part = TensorPart::kWeight);

// Tensors that files may hold and the forward pass gets from elsewhere (RoPE tables).
bool IsDerivedTensor(std::string_view name);

}  // namespace quire::model
