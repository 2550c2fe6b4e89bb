#include "model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/architectures.h"

namespace quire::model {

namespace {

// Typed access to `architecture.key`. A key that is absent takes the fallback; one of another type,
// or a required one that is absent, is recorded, and the first such error is kept.
class GgufFields {
 public:
  GgufFields(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  bool Has(std::string_view key) const { return file_.Find(prefix_ + std::string(key)) != nullptr; }

  int Int(std::string_view key, std::optional<int> fallback) {
    const std::string name = prefix_ + std::string(key);
    std::optional<int64_t> value = file_.GetInt(name);
    // Some writers give one number per layer even where all are equal.
    if (!value) value = CommonElement(name);
    if (!value && fallback && file_.Find(name) == nullptr) return *fallback;
    if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) {
      Fail(name, "one non-negative integer");
      return 0;
    }
    return static_cast<int>(*value);
  }

  double Number(std::string_view key, std::optional<double> fallback) {
    const std::string name = prefix_ + std::string(key);
    std::optional<double> value = file_.GetFloat(name);
    if (!value && fallback && file_.Find(name) == nullptr) return *fallback;
    if (!value || !std::isfinite(*value)) Fail(name, "a number");
    return value.value_or(0);
  }

  std::string Text(std::string_view key, std::string_view fallback) {
    const std::string name = prefix_ + std::string(key);
    if (file_.Find(name) == nullptr) return std::string(fallback);
    std::optional<std::string_view> value = file_.GetString(name);
    if (!value) Fail(name, "a string");
    return std::string(value.value_or(fallback));
  }

  // A key whose effect nothing here computes must have its neutral value.
  void Refuse(std::string_view key, double neutral) {
    double value = Number(key, neutral);
    if (value != neutral) {
      Fail(MakeError(ErrorKind::kUnsupported, "metadata '{}{}' is {}; only {} is supported",
                     prefix_, key, value, neutral));
    }
  }

  void Fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  Status status() const { return error_ ? Status(*error_) : Status(Ok{}); }

 private:
  std::optional<int64_t> CommonElement(const std::string& name) const {
    std::optional<std::vector<int64_t>> list = file_.GetIntArray(name);
    if (!list || list->empty()) return std::nullopt;
    if (std::any_of(list->begin(), list->end(), [&](int64_t x) { return x != list->front(); })) {
      return std::nullopt;
    }
    return list->front();
  }

  void Fail(std::string_view name, std::string_view expected) {
    Fail(MakeError(ErrorKind::kInvalid, "metadata '{}' is {}; {} is expected", name,
                   file_.Find(name) == nullptr ? "absent" : "something else", expected));
  }

  const GgufFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

// The values of a one-dimensional F32 tensor; empty if there is none.
Result<std::vector<float>> ReadFactors(const GgufFile& file, std::string_view name) {
  std::vector<float> factors;
  if (file.FindTensor(name) == nullptr) return factors;
  QUIRE_ASSIGN_OR_RETURN(StoredTensor tensor, file.Tensor(name));
  if (tensor.type != DType::kF32 || tensor.rows != 1) {
    return MakeError(ErrorKind::kUnsupported,
                     "tensor '{}' is {} with {} rows; one row of F32 is "
                     "supported",
                     name, Name(tensor.type), tensor.rows);
  }
  factors.resize(static_cast<size_t>(tensor.cols));
  std::memcpy(factors.data(), tensor.data, tensor.bytes());
  return factors;
}

void ReadSizes(const GgufFile& file, const Architecture& architecture, GgufFields& fields,
               ModelConfig& config) {
  config.hidden_size = fields.Int("embedding_length", std::nullopt);
  config.layers = fields.Int("block_count", std::nullopt);
  config.ffn_size = fields.Int("feed_forward_length", std::nullopt);
  config.context_length = fields.Int("context_length", std::nullopt);
  config.q_heads = fields.Int("attention.head_count", std::nullopt);
  config.kv_heads = fields.Int("attention.head_count_kv", config.q_heads);
  const int even_share = config.q_heads > 0 ? config.hidden_size / config.q_heads : 0;
  config.head_dim = fields.Int("attention.key_length", even_share);
  if (int value_dim = fields.Int("attention.value_length", config.head_dim);
      value_dim != config.head_dim) {
    fields.Fail(MakeError(ErrorKind::kUnsupported,
                          "keys have {} channels per head and values {}; only equal sizes are "
                          "supported",
                          config.head_dim, value_dim));
  }
  const GgufValue* tokens = file.Find("tokenizer.ggml.tokens");
  const int64_t token_count =
      tokens == nullptr ? 0 : std::min<int64_t>(tokens->count, std::numeric_limits<int>::max());
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding != nullptr && embedding->rows() <= std::numeric_limits<int>::max()) {
    config.vocab_size = static_cast<int>(embedding->rows());
  } else {
    config.vocab_size = fields.Int("vocab_size", static_cast<int>(token_count));
  }
  if (token_count > config.vocab_size) {
    fields.Fail(MakeError(ErrorKind::kInvalid,
                          "the tokenizer has {} tokens, and the model's vocabulary {}", token_count,
                          config.vocab_size));
  }
  config.norm_eps =
      static_cast<float>(fields.Number("attention.layer_norm_rms_epsilon", std::nullopt));
  config.qk_norm = architecture.qk_norm;
  config.post_norms = architecture.is_gemma;
  config.activation = architecture.activation;
  config.tied_embeddings = file.FindTensor("output.weight") == nullptr;
  config.qkv_bias = file.FindTensor("blk.0.attn_q.bias") != nullptr ||
                    file.FindTensor("blk.0.attn_qkv.bias") != nullptr;
  config.output_bias = file.FindTensor("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.FindTensor("blk.0.ffn_up.bias") != nullptr;
}

void ReadAttention(const Architecture& architecture, GgufFields& fields, ModelConfig& config) {
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(std::max(config.head_dim, 1)));
  WindowPlan plan{.window = fields.Int("attention.sliding_window", 0)};
  if (architecture.is_gemma) {
    plan.window = fields.Int("attention.sliding_window", 4096);
    config.embedding_scale = std::sqrt(static_cast<float>(std::max(config.hidden_size, 1)));
    config.attention_softcap = static_cast<float>(fields.Number("attn_logit_softcapping", 50.0));
    config.final_softcap = static_cast<float>(fields.Number("final_logit_softcapping", 30.0));
    // The one gemma2 of 46 layers (27B) scales by hidden_size / heads; files do not say so.
    if (config.layers == 46 && config.q_heads > 0) {
      config.attention_scale =
          1.0f / std::sqrt(static_cast<float>(config.hidden_size) / config.q_heads);
    }
  }
  // Files of Phi-3 mini and medium 4k made before the key existed: those models have 2047.
  if (architecture.name == "phi3" && !fields.Has("attention.sliding_window") &&
      (config.layers == 32 || config.layers == 40) && config.context_length == 4096) {
    plan.window = 2047;
  }
  if (fields.Has("attention.scale")) {
    config.attention_scale = static_cast<float>(fields.Number("attention.scale", std::nullopt));
  }
  if (config.layers >= 0 && config.layers <= 4096) {  // Validate refuses the rest
    config.sliding_windows = WindowsOf(architecture, config, plan);
  }
  for (const char* key : {"expert_count", "attention.clamp_kqv", "attention.max_alibi_bias",
                          "rope.scaling.yarn_log_multiplier"}) {
    fields.Refuse(key, 0);
  }
  for (const char* key : {"attention.causal", "logit_scale", "residual_scale", "embedding_scale",
                          "rope.scaling.yarn_ext_factor"}) {
    fields.Refuse(key, 1);
  }
}

// YaRN's and linear scaling are metadata; llama3's and longrope's factors are tensors.
Status ReadRope(const GgufFile& file, GgufFields& fields, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.dims = fields.Int("rope.dimension_count", config.head_dim);
  rope.theta = fields.Number("rope.freq_base", 10000.0);
  rope.original_context = fields.Int("rope.scaling.original_context_length", config.context_length);
  rope.factor = fields.Number("rope.scaling.factor", fields.Number("rope.scale_linear", 1.0));
  if (rope.factor == 0.0) rope.factor = 1.0;  // how some writers say "none"
  const double attention_factor = fields.Number("rope.scaling.attn_factor", 1.0);
  const std::string type = fields.Text("rope.scaling.type", "linear");
  QUIRE_ASSIGN_OR_RETURN(std::vector<float> freqs, ReadFactors(file, "rope_freqs.weight"));
  QUIRE_ASSIGN_OR_RETURN(rope.short_factors, ReadFactors(file, "rope_factors_short.weight"));
  QUIRE_ASSIGN_OR_RETURN(rope.long_factors, ReadFactors(file, "rope_factors_long.weight"));
  const bool has_factors = !freqs.empty() || !rope.short_factors.empty();

  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = fields.Number("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = fields.Number("rope.scaling.yarn_beta_slow", 1.0);
    // The file's factor comes on top of YaRN's own.
    const double own = rope.factor > 1.0 ? 1.0 + 0.1 * std::log(rope.factor) : 1.0;
    rope.attention_factor =
        own * attention_factor * fields.Number("rope.scaling.yarn_attn_factor", 1.0);
    const double stretched = rope.original_context * rope.factor;
    if (stretched <= std::numeric_limits<int>::max() && stretched > config.context_length) {
      config.context_length = static_cast<int>(stretched);
    }
  } else if (type == "none" || (type == "longrope" && has_factors) ||
             (type == "linear" && rope.factor == 1.0)) {
    rope.factor = 1.0;
  } else if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else {
    return MakeError(ErrorKind::kUnsupported,
                     "RoPE scaling of type '{:.40}' found; supported are none, linear, yarn, and "
                     "the factors of llama3 and longrope",
                     type);
  }
  if (!has_factors) return Ok{};
  if (rope.scaling != RopeScaling::kNone || (!freqs.empty() && !rope.short_factors.empty())) {
    return MakeError(ErrorKind::kUnsupported,
                     "the model has RoPE factors and a second kind of RoPE scaling ('{}'); one at "
                     "a time is supported",
                     type);
  }
  if (!freqs.empty()) {
    rope.scaling = RopeScaling::kLlama3;
    rope.short_factors = std::move(freqs);
  } else {
    rope.scaling = RopeScaling::kLongRope;
    rope.attention_factor = attention_factor;
  }
  return Ok{};
}

std::optional<TokenId> ReadToken(const GgufFile& file, std::string_view key) {
  std::optional<int64_t> id = file.GetInt(key);
  // All bits set is how some writers say "none".
  if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) return std::nullopt;
  return static_cast<TokenId>(*id);
}

void AddEos(ModelConfig& config, TokenId id) {
  if (std::find(config.eos_ids.begin(), config.eos_ids.end(), id) == config.eos_ids.end()) {
    config.eos_ids.push_back(id);
  }
}

// Chat models end a turn with a token of their own, which many files do not list among the ids.
void AddTurnEnds(const GgufFile& file, ModelConfig& config) {
  constexpr std::string_view kTurnEnds[] = {"<|eot_id|>", "<|eom_id|>",    "<|im_end|>",
                                            "<|end|>",    "<end_of_turn>", "<|endoftext|>"};
  constexpr int64_t kControl = 3;  // values of tokenizer.ggml.token_type
  constexpr int64_t kUserDefined = 4;
  std::optional<std::vector<std::string_view>> tokens =
      file.GetStringArray("tokenizer.ggml.tokens");
  std::optional<std::vector<int64_t>> types = file.GetIntArray("tokenizer.ggml.token_type");
  if (!tokens || !types || tokens->size() != types->size()) return;
  for (size_t id = 0; id < tokens->size(); ++id) {
    if ((*types)[id] != kControl && (*types)[id] != kUserDefined) continue;
    if (std::find(std::begin(kTurnEnds), std::end(kTurnEnds), (*tokens)[id]) !=
        std::end(kTurnEnds)) {
      AddEos(config, static_cast<TokenId>(id));
    }
  }
}

}  // namespace

Result<ModelConfig> ConfigFromGguf(const GgufFile& file) {
  std::optional<std::string_view> name = file.GetString("general.architecture");
  if (!name) {
    return MakeError(ErrorKind::kInvalid,
                     "metadata 'general.architecture' is absent; this file holds no model");
  }
  QUIRE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(*name));
  ModelConfig config;
  config.architecture = architecture->name;
  config.name = std::string(file.GetString("general.name").value_or(""));
  config.rope.pairing = architecture->gguf_pairing;
  GgufFields fields(file, *name);
  ReadSizes(file, *architecture, fields, config);
  QUIRE_RETURN_IF_ERROR(ReadRope(file, fields, config));
  ReadAttention(*architecture, fields, config);
  QUIRE_RETURN_IF_ERROR(fields.status());

  config.bos_id = ReadToken(file, "tokenizer.ggml.bos_token_id");
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (std::optional<TokenId> id = ReadToken(file, key)) AddEos(config, *id);
  }
  AddTurnEnds(file, config);
  QUIRE_RETURN_IF_ERROR(Validate(config));
  return config;
}

}  // namespace quire::model
