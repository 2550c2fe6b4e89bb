#include "model/model_config.h"

#include <cmath>

namespace quire::model {

namespace {

// Far above any model of these architectures, and small enough that no product of two of them
// overflows an int, nor a tensor's bytes 63 bits.
constexpr int kMaxVocabulary = 1 << 22;
constexpr int kMaxWidth = 1 << 19;  // hidden, FFN and all heads together
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxContext = 1 << 27;

Error Impossible(std::string_view what, double found, std::string_view expected) {
  return MakeError(ErrorKind::kInvalid, "the model's {} is {}, and {} is expected", what, found,
                   expected);
}

Status CheckRange(std::string_view what, int value, int max) {
  if (value >= 1 && value <= max) return Ok{};
  return Impossible(what, value, fmt::format("1 to {}", max));
}

bool IsPositive(double value) {
  return std::isfinite(value) && value > 0;
}

Status ValidateSizes(const ModelConfig& c) {
  QUIRE_RETURN_IF_ERROR(CheckRange("vocabulary size", c.vocab_size, kMaxVocabulary));
  QUIRE_RETURN_IF_ERROR(CheckRange("hidden size", c.hidden_size, kMaxWidth));
  QUIRE_RETURN_IF_ERROR(CheckRange("FFN size", c.ffn_size, kMaxWidth));
  QUIRE_RETURN_IF_ERROR(CheckRange("number of layers", c.layers, kMaxLayers));
  QUIRE_RETURN_IF_ERROR(CheckRange("head size", c.head_dim, kMaxHeadDim));
  QUIRE_RETURN_IF_ERROR(CheckRange("number of heads", c.q_heads, kMaxWidth / c.head_dim));
  QUIRE_RETURN_IF_ERROR(CheckRange("number of KV heads", c.kv_heads, c.q_heads));
  QUIRE_RETURN_IF_ERROR(CheckRange("context length", c.context_length, kMaxContext));
  if (c.q_heads % c.kv_heads != 0) {
    return MakeError(ErrorKind::kInvalid,
                     "the model has {} heads and {} KV heads; each KV head must serve equally many",
                     c.q_heads, c.kv_heads);
  }
  return Ok{};
}

Status ValidateFactors(std::string_view what, const std::vector<float>& factors, int pairs) {
  if (factors.size() != static_cast<size_t>(pairs)) {
    return MakeError(ErrorKind::kInvalid, "the model has {} {} RoPE factors for {} rotated pairs",
                     factors.size(), what, pairs);
  }
  for (float factor : factors) {
    if (!IsPositive(factor)) return Impossible("RoPE factor", factor, "a positive number");
  }
  return Ok{};
}

Status ValidateRope(const ModelConfig& c) {
  const RopeConfig& rope = c.rope;
  if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > c.head_dim) {
    return Impossible("number of rotated channels", rope.dims,
                      fmt::format("an even number up to the head size {}", c.head_dim));
  }
  if (!IsPositive(rope.theta)) return Impossible("RoPE theta", rope.theta, "a positive number");
  if (!IsPositive(rope.factor)) return Impossible("RoPE factor", rope.factor, "a positive number");
  const bool needs_original = rope.scaling == RopeScaling::kYarn ||
                              rope.scaling == RopeScaling::kLongRope ||
                              (rope.scaling == RopeScaling::kLlama3 && rope.short_factors.empty());
  if (needs_original) {
    QUIRE_RETURN_IF_ERROR(
        CheckRange("context length before RoPE scaling", rope.original_context, kMaxContext));
  }
  if (!(std::isfinite(rope.attention_factor) && rope.attention_factor >= 0)) {
    return Impossible("RoPE attention factor", rope.attention_factor, "a positive number");
  }
  if (rope.scaling == RopeScaling::kYarn &&
      !(IsPositive(rope.beta_slow) && IsPositive(rope.beta_fast))) {
    return Impossible("YaRN beta", std::min(rope.beta_slow, rope.beta_fast), "a positive number");
  }
  if (rope.scaling == RopeScaling::kLlama3 &&
      !(IsPositive(rope.low_freq_factor) && std::isfinite(rope.high_freq_factor) &&
        rope.high_freq_factor > rope.low_freq_factor)) {
    return Impossible("RoPE high_freq_factor", rope.high_freq_factor,
                      fmt::format("more than low_freq_factor {}", rope.low_freq_factor));
  }
  const int pairs = rope.dims / 2;
  const bool longrope = rope.scaling == RopeScaling::kLongRope;
  if (longrope || !rope.short_factors.empty()) {
    QUIRE_RETURN_IF_ERROR(ValidateFactors("short", rope.short_factors, pairs));
  }
  if (longrope || !rope.long_factors.empty()) {
    QUIRE_RETURN_IF_ERROR(ValidateFactors("long", rope.long_factors, pairs));
  }
  return Ok{};
}

Status ValidateTokens(const ModelConfig& c) {
  if (c.bos_id && (*c.bos_id < 0 || *c.bos_id >= c.vocab_size)) {
    return Impossible("BOS id", *c.bos_id, fmt::format("an id below {}", c.vocab_size));
  }
  for (TokenId id : c.eos_ids) {
    if (id < 0 || id >= c.vocab_size) {
      return Impossible("EOS id", id, fmt::format("an id below {}", c.vocab_size));
    }
  }
  return Ok{};
}

}  // namespace

Status Validate(const ModelConfig& c) {
  QUIRE_RETURN_IF_ERROR(ValidateSizes(c));
  QUIRE_RETURN_IF_ERROR(ValidateRope(c));
  QUIRE_RETURN_IF_ERROR(ValidateTokens(c));
  if (!(std::isfinite(c.norm_eps) && c.norm_eps >= 0 && c.norm_eps < 1)) {
    return Impossible("norm epsilon", c.norm_eps, "a small positive number");
  }
  if (!IsPositive(c.attention_scale)) {
    return Impossible("attention scale", c.attention_scale, "a positive number");
  }
  if (!IsPositive(c.embedding_scale)) {
    return Impossible("embedding scale", c.embedding_scale, "a positive number");
  }
  for (float cap : {c.attention_softcap, c.final_softcap}) {
    if (!(std::isfinite(cap) && cap >= 0)) {
      return Impossible("soft cap", cap, "a positive number, or 0 for none");
    }
  }
  if (c.sliding_windows.size() != static_cast<size_t>(c.layers)) {
    return MakeError(ErrorKind::kInvalid, "the model has {} layers, and sliding windows for {}",
                     c.layers, c.sliding_windows.size());
  }
  for (int window : c.sliding_windows) {
    if (window < 0) return Impossible("sliding window", window, "a positive number, or 0 for none");
  }
  return Ok{};
}

kvstore::KvGeometry KvGeometryOf(const ModelConfig& config) {
  return {config.kv_heads, config.head_dim, config.sliding_windows};
}

int64_t WeightsPerToken(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t attention = hidden * (2 * config.q_size() + 2 * config.kv_size());
  const int64_t mlp = 3 * hidden * config.ffn_size;
  return config.layers * (attention + mlp) + hidden * config.vocab_size;
}

}  // namespace quire::model
