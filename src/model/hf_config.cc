#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/architectures.h"
#include "model/json_fields.h"

namespace quire::model {

namespace json = boost::json;

namespace {

Result<const Architecture*> ReadArchitecture(JsonFields& fields, std::string_view where) {
  std::vector<std::string> classes = fields.Texts("architectures");
  QUIRE_RETURN_IF_ERROR(fields.status());
  if (!classes.empty()) return FindHfArchitecture(classes.front());
  std::string type = fields.Text("model_type", "");
  QUIRE_RETURN_IF_ERROR(fields.status());
  if (type.empty()) {
    return MakeError(ErrorKind::kInvalid,
                     "{} has neither 'architectures' nor 'model_type'; it describes no model",
                     where);
  }
  return FindArchitecture(type);
}

Result<Activation> ReadActivation(JsonFields& fields, const Architecture& architecture) {
  const bool gemma = architecture.is_gemma;
  std::string name = fields.Text("hidden_act", gemma ? "gelu_pytorch_tanh" : "silu");
  // gemma2's code reads this field and ignores the other.
  if (gemma) name = fields.Text("hidden_activation", name);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  return MakeError(ErrorKind::kUnsupported,
                   "the model's activation is '{:.40}'; silu and gelu_pytorch_tanh are supported",
                   name);
}

void ReadSizes(JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  config.vocab_size = fields.Int("vocab_size");
  config.hidden_size = fields.Int("hidden_size");
  config.layers = fields.Int("num_hidden_layers");
  config.ffn_size = fields.Int("intermediate_size");
  config.context_length = fields.Int("max_position_embeddings");
  config.q_heads = fields.Int("num_attention_heads");
  config.kv_heads = fields.Int("num_key_value_heads", config.q_heads);
  int head_dim = architecture.default_head_dim;
  if (head_dim == 0 && config.q_heads > 0) head_dim = config.hidden_size / config.q_heads;
  config.head_dim = fields.Int("head_dim", head_dim);
  config.norm_eps =
      static_cast<float>(fields.Number("rms_norm_eps", architecture.name == "phi3" ? 1e-5 : 1e-6));
  config.norm_weight_plus_one = architecture.is_gemma;
  config.post_norms = architecture.is_gemma;
  config.qk_norm = architecture.qk_norm;
  const bool attention_bias = fields.Bool("attention_bias").value_or(false);
  config.qkv_bias = architecture.qkv_bias || attention_bias;
  config.output_bias = attention_bias && !architecture.qkv_bias;
  config.mlp_bias = fields.Bool("mlp_bias").value_or(false);
  config.tied_embeddings =
      fields.Bool("tie_word_embeddings").value_or(architecture.tied_by_default);
}

// What other members of these families have and nothing here computes.
Status RefuseOtherKinds(JsonFields& fields, std::string_view where) {
  if (const json::object* quantization = fields.Object("quantization_config")) {
    JsonFields inner(*quantization, where);
    return MakeError(ErrorKind::kUnsupported,
                     "{}: the weights are quantized by '{:.40}'; directories with F32, F16 or BF16 "
                     "weights are supported, and quantized models as GGUF files",
                     where, inner.Text("quant_method", "an unnamed method"));
  }
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (int experts = fields.Int(key, 0); experts > 1) {
      return MakeError(ErrorKind::kUnsupported,
                       "{}: the model is a mixture of {} experts; only dense models are supported",
                       where, experts);
    }
  }
  return fields.status();
}

// gemma2: the class has a cap unless the file says null.
float ReadSoftcap(JsonFields& fields, std::string_view key, double fallback) {
  return static_cast<float>(fields.Number(key, fields.Mentions(key) ? 0.0 : fallback));
}

// Newer files list the kind of each layer; older ones leave it to the architecture's rule.
void ReadWindows(JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  if (config.layers < 0 || config.layers > 4096) return;  // Validate refuses it
  // Two classes have a window unless the file says null.
  const bool by_default = architecture.is_gemma || architecture.name == "mistral";
  WindowPlan plan{.window = by_default && !fields.Mentions("sliding_window")
                                ? 4096
                                : fields.Int("sliding_window", 0)};
  if (architecture.windows == WindowRule::kFromLayer) {
    if (!fields.Bool("use_sliding_window").value_or(false)) plan.window = 0;
    plan.first_layer = fields.Int("max_window_layers", 0);
  }
  config.sliding_windows = WindowsOf(architecture, config, plan);
  std::vector<std::string> types = fields.Texts("layer_types");
  if (types.empty() || plan.window == 0) return;
  if (types.size() != static_cast<size_t>(config.layers)) {
    fields.Fail(MakeError(ErrorKind::kInvalid, "config.json lists {} layer types for {} layers",
                          types.size(), config.layers));
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") {
      config.sliding_windows[i] = 0;
    } else if (types[i] == "sliding_attention") {
      config.sliding_windows[i] = plan.window < config.context_length ? plan.window : 0;
    } else {
      fields.Fail(MakeError(ErrorKind::kUnsupported,
                            "layer {} is of type '{:.40}'; full_attention and sliding_attention "
                            "are supported",
                            i, types[i]));
    }
  }
}

// "Attention scaling" of 2309.00071: how much longer contexts sharpen the softmax.
double YarnScale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

int Stretched(int context, double factor) {
  const double stretched = std::round(context * factor);
  return stretched > 0 && stretched < (1 << 30) ? static_cast<int>(stretched) : context;
}

Status ReadYarn(JsonFields& scaling, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kYarn;
  rope.original_context = scaling.Int("original_max_position_embeddings", config.context_length);
  rope.beta_fast = scaling.Number("beta_fast", 32.0);
  rope.beta_slow = scaling.Number("beta_slow", 1.0);
  if (!scaling.Has("factor") && rope.original_context > 0) {
    rope.factor = static_cast<double>(config.context_length) / rope.original_context;
  }
  const double mscale = scaling.Number("mscale", 0.0);
  const double mscale_all = scaling.Number("mscale_all_dim", 0.0);
  double attention = YarnScale(rope.factor, 1.0);
  if (mscale != 0.0 && mscale_all != 0.0) {
    attention = YarnScale(rope.factor, mscale) / YarnScale(rope.factor, mscale_all);
  }
  rope.attention_factor = scaling.Number("attention_factor", attention);
  if (!scaling.Bool("truncate").value_or(true)) {
    return MakeError(
        ErrorKind::kUnsupported,
        "YaRN without truncated correction bounds ('truncate': false) is not supported");
  }
  config.context_length =
      std::max(config.context_length, Stretched(rope.original_context, rope.factor));
  return scaling.status();
}

Status ReadLongRope(JsonFields& scaling, JsonFields& top, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kLongRope;
  rope.short_factors = scaling.Numbers("short_factor");
  rope.long_factors = scaling.Numbers("long_factor");
  rope.original_context =
      scaling.Int("original_max_position_embeddings",
                  top.Int("original_max_position_embeddings", config.context_length));
  double stretch = 1.0;
  if (rope.original_context > 0) {
    stretch = static_cast<double>(config.context_length) / rope.original_context;
  }
  stretch = scaling.Number("factor", stretch);
  double attention = 1.0;
  if (stretch > 1.0 && rope.original_context > 1) {
    attention = std::sqrt(1.0 + std::log(stretch) / std::log(rope.original_context));
  }
  rope.attention_factor = scaling.Number("attention_factor", attention);
  rope.factor = 1.0;  // the factors per pair say all
  QUIRE_RETURN_IF_ERROR(top.status());
  return scaling.status();
}

Status ReadScaling(JsonFields& scaling, JsonFields& top, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  std::string type = scaling.Text("rope_type", scaling.Text("type", "default"));
  // Old phi3 files call longrope by the names it had at first.
  if (config.architecture == "phi3" && (type == "su" || type == "yarn")) type = "longrope";
  rope.factor = scaling.Number("factor", 1.0);
  if (type == "default") {
    rope.factor = 1.0;
  } else if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    config.context_length = Stretched(config.context_length, rope.factor);
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = scaling.Number("low_freq_factor", 1.0);
    rope.high_freq_factor = scaling.Number("high_freq_factor", 4.0);
    rope.original_context = scaling.Int("original_max_position_embeddings");
  } else if (type == "yarn") {
    return ReadYarn(scaling, config);
  } else if (type == "longrope") {
    return ReadLongRope(scaling, top, config);
  } else {
    return MakeError(ErrorKind::kUnsupported,
                     "RoPE scaling of type '{:.40}' found; supported are linear, llama3, yarn and "
                     "longrope",
                     type);
  }
  return scaling.status();
}

Status ReadRope(JsonFields& fields, std::string_view where, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = fields.Number("rope_theta", 10000.0);
  double partial = fields.Number("partial_rotary_factor", 1.0);
  const json::object* scaling = fields.Object("rope_scaling");
  // transformers 5 keeps all of it in one object.
  if (const json::object* parameters = fields.Object("rope_parameters")) scaling = parameters;
  rope.original_context = config.context_length;
  if (scaling != nullptr) {
    JsonFields inner(*scaling, where);
    rope.theta = inner.Number("rope_theta", rope.theta);
    partial = inner.Number("partial_rotary_factor", partial);
    QUIRE_RETURN_IF_ERROR(ReadScaling(inner, fields, config));
  }
  if (!(partial > 0.0 && partial <= 1.0)) {
    return MakeError(ErrorKind::kInvalid, "{}: partial_rotary_factor is {}, and must be in (0, 1]",
                     where, partial);
  }
  rope.dims = static_cast<int>(config.head_dim * partial);
  return fields.status();
}

}  // namespace

Result<ModelConfig> ConfigFromHf(const json::object& object, std::string_view where) {
  JsonFields fields(object, where);
  QUIRE_ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(fields, where));
  ModelConfig config;
  config.architecture = architecture->name;
  config.name = fields.Text("_name_or_path", "");
  QUIRE_RETURN_IF_ERROR(RefuseOtherKinds(fields, where));
  ReadSizes(fields, *architecture, config);
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_ASSIGN_OR_RETURN(config.activation, ReadActivation(fields, *architecture));
  QUIRE_RETURN_IF_ERROR(ReadRope(fields, where, config));
  ReadWindows(fields, *architecture, config);

  double scale_size = config.head_dim;
  if (architecture->is_gemma) {
    scale_size = fields.Number("query_pre_attn_scalar", 256.0);
    config.embedding_scale = std::sqrt(static_cast<float>(std::max(config.hidden_size, 1)));
    config.attention_softcap =
        static_cast<float>(ReadSoftcap(fields, "attn_logit_softcapping", 50.0));
    config.final_softcap = static_cast<float>(ReadSoftcap(fields, "final_logit_softcapping", 30.0));
  }
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(std::max(scale_size, 1e-6)));
  std::vector<int32_t> bos = fields.IntOrInts("bos_token_id");
  if (!bos.empty()) config.bos_id = bos.front();
  config.eos_ids = fields.IntOrInts("eos_token_id");
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_RETURN_IF_ERROR(Validate(config));
  return config;
}

}  // namespace quire::model
