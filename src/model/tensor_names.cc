#include "model/tensor_names.h"

#include <fmt/format.h>

#include "base/check.h"

namespace quire::model {

namespace {

struct Names {
  TensorRole role;
  std::string_view gguf;
  std::string_view hf;
  std::string_view hf_post_norms;
};

constexpr Names kModelNames[] = {
    {TensorRole::kTokenEmbedding, "token_embd", "model.embed_tokens", "model.embed_tokens"},
    {TensorRole::kOutputNorm, "output_norm", "model.norm", "model.norm"},
    {TensorRole::kOutput, "output", "lm_head", "lm_head"},
};

constexpr Names kLayerNames[] = {
    {TensorRole::kAttentionNorm, "attn_norm", "input_layernorm", "input_layernorm"},
    {TensorRole::kPostAttentionNorm, "post_attention_norm", "", "post_attention_layernorm"},
    {TensorRole::kFfnNorm, "ffn_norm", "post_attention_layernorm", "pre_feedforward_layernorm"},
    {TensorRole::kPostFfnNorm, "post_ffw_norm", "", "post_feedforward_layernorm"},
    {TensorRole::kQNorm, "attn_q_norm", "self_attn.q_norm", "self_attn.q_norm"},
    {TensorRole::kKNorm, "attn_k_norm", "self_attn.k_norm", "self_attn.k_norm"},
    {TensorRole::kQ, "attn_q", "self_attn.q_proj", "self_attn.q_proj"},
    {TensorRole::kK, "attn_k", "self_attn.k_proj", "self_attn.k_proj"},
    {TensorRole::kV, "attn_v", "self_attn.v_proj", "self_attn.v_proj"},
    {TensorRole::kQkv, "attn_qkv", "self_attn.qkv_proj", "self_attn.qkv_proj"},
    {TensorRole::kO, "attn_output", "self_attn.o_proj", "self_attn.o_proj"},
    {TensorRole::kGate, "ffn_gate", "mlp.gate_proj", "mlp.gate_proj"},
    {TensorRole::kUp, "ffn_up", "mlp.up_proj", "mlp.up_proj"},
    // GGUF has no name of its own for the fused one: a model with it has no ffn_gate.
    {TensorRole::kGateUp, "ffn_up", "mlp.gate_up_proj", "mlp.gate_up_proj"},
    {TensorRole::kDown, "ffn_down", "mlp.down_proj", "mlp.down_proj"},
};

std::string_view In(NameStyle style, const Names& names) {
  switch (style) {
    case NameStyle::kGguf:
      return names.gguf;
    case NameStyle::kHf:
      return names.hf;
    case NameStyle::kHfPostNorms:
      return names.hf_post_norms;
  }
  base::CheckFailed(__FILE__, __LINE__, "unknown name style");
}

}  // namespace

std::string TensorName(NameStyle style, TensorRole role, int layer, TensorPart part) {
  const std::string_view suffix = part == TensorPart::kWeight ? "weight" : "bias";
  for (const Names& names : kModelNames) {
    if (names.role == role) return fmt::format("{}.{}", In(style, names), suffix);
  }
  const std::string_view prefix = style == NameStyle::kGguf ? "blk" : "model.layers";
  for (const Names& names : kLayerNames) {
    if (names.role == role) {
      return fmt::format("{}.{}.{}.{}", prefix, layer, In(style, names), suffix);
    }
  }
  base::CheckFailed(__FILE__, __LINE__, "unknown tensor role");
}

bool IsDerivedTensor(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight" ||
         name == "rope_factors_short.weight" || name == "rope_factors_long.weight";
}

}  // namespace quire::model
