#include "model/random_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rng.h"
#include "kernels/quantize.h"
#include "model/architectures.h"
#include "model/gguf_writer.h"
#include "model/made_vocabulary.h"
#include "model/tensor_names.h"
#include "tensor/buffer.h"

namespace quire::model {

namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;  // made in memory before it is written
constexpr int kLlama3Context = 8192;
constexpr double kLlama3Low = 1.0;
constexpr double kLlama3High = 4.0;

constexpr double kEmbeddingDeviation = 0.02;

// A tensor to be written: random, or given values (norms, RoPE factors).
struct PlannedTensor {
  std::string name;
  DType type = DType::kF32;
  int64_t rows = 0;  // 0: a vector
  int64_t cols = 0;
  double deviation = 0.0;     // 0: all values are `values`
  std::vector<float> values;  // [cols]
};

// Independent of order and of the language's own hash.
uint64_t StreamOf(std::string_view name) {
  uint64_t hash = 0;
  for (char c : name) hash = base::Mix64(hash ^ static_cast<uint8_t>(c));
  return hash;
}

// The sum of four uniform 16-bit numbers is close enough to normal, and one draw is cheap.
void FillRow(base::CounterRng rng, double deviation, std::span<float> row) {
  constexpr float kMean = 4 * 32767.5f;
  const float scale = static_cast<float>(deviation / 37837.23);  // sqrt(4 / 12) * 65536
  for (float& value : row) {
    const uint64_t bits = rng.NextU64();
    const uint32_t sum = static_cast<uint32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                               (bits >> 32 & 0xffff) + (bits >> 48));
    value = (static_cast<float>(sum) - kMean) * scale;
  }
}

// Divisors of llama3's scaling: wavelengths that fit the original context keep, long ones stretch.
std::vector<float> Llama3Factors(const ModelConfig& config, double factor) {
  std::vector<float> factors;
  for (int i = 0; i < config.rope.dims; i += 2) {
    const double wavelength =
        2.0 * std::numbers::pi *
        std::pow(config.rope.theta, static_cast<double>(i) / config.rope.dims);
    const double turns = kLlama3Context / wavelength;
    const double keep = std::clamp((turns - kLlama3Low) / (kLlama3High - kLlama3Low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - keep) / factor + keep)));
  }
  return factors;
}

// Divisors of a made longrope: rising from 1 to `largest`.
std::vector<float> RisingFactors(int pairs, double largest) {
  std::vector<float> factors;
  for (int i = 0; i < pairs; ++i) {
    factors.push_back(static_cast<float>(std::pow(largest, static_cast<double>(i) / pairs)));
  }
  return factors;
}

class Planner {
 public:
  Planner(const RandomModelOptions& options, const ModelConfig& config)
      : type_(options.type), config_(config) {}

  std::vector<PlannedTensor> Plan();

 private:
  void Matrix(TensorRole role, int64_t rows, int64_t cols);
  void Ones(TensorRole role, int64_t cols);
  void Bias(TensorRole role, int64_t cols);
  void Given(std::string name, std::vector<float> values);
  void PlanLayer();

  const DType type_;
  const ModelConfig& config_;
  int layer_ = 0;
  std::vector<PlannedTensor> tensors_;
};

void Planner::Matrix(TensorRole role, int64_t rows, int64_t cols) {
  const bool embedding = role == TensorRole::kTokenEmbedding || role == TensorRole::kOutput;
  tensors_.push_back(
      {.name = TensorName(NameStyle::kGguf, role, layer_),
       .type = type_,
       .rows = rows,
       .cols = cols,
       .deviation = embedding ? kEmbeddingDeviation : 1.0 / std::sqrt(static_cast<double>(cols)),
       .values = {}});
}

void Planner::Given(std::string name, std::vector<float> values) {
  const int64_t cols = static_cast<int64_t>(values.size());
  tensors_.push_back({.name = std::move(name), .cols = cols, .values = std::move(values)});
}

void Planner::Ones(TensorRole role, int64_t cols) {
  Given(TensorName(NameStyle::kGguf, role, layer_),
        std::vector<float>(static_cast<size_t>(cols), 1.0f));
}

void Planner::Bias(TensorRole role, int64_t cols) {
  tensors_.push_back({.name = TensorName(NameStyle::kGguf, role, layer_, TensorPart::kBias),
                      .cols = cols,
                      .deviation = kEmbeddingDeviation,
                      .values = {}});
}

void Planner::PlanLayer() {
  const int64_t hidden = config_.hidden_size;
  const int64_t q = config_.q_size();
  const int64_t kv = config_.kv_size();
  const bool fused = config_.architecture == "phi3";
  Ones(TensorRole::kAttentionNorm, hidden);
  if (fused) {
    Matrix(TensorRole::kQkv, q + 2 * kv, hidden);
  } else {
    Matrix(TensorRole::kQ, q, hidden);
    Matrix(TensorRole::kK, kv, hidden);
    Matrix(TensorRole::kV, kv, hidden);
  }
  if (config_.qkv_bias) {
    Bias(TensorRole::kQ, q);
    Bias(TensorRole::kK, kv);
    Bias(TensorRole::kV, kv);
  }
  if (config_.qk_norm) {
    Ones(TensorRole::kQNorm, config_.head_dim);
    Ones(TensorRole::kKNorm, config_.head_dim);
  }
  Matrix(TensorRole::kO, hidden, q);
  if (config_.post_norms) {
    Ones(TensorRole::kPostAttentionNorm, hidden);
    Ones(TensorRole::kPostFfnNorm, hidden);
  }
  Ones(TensorRole::kFfnNorm, hidden);
  if (fused) {
    Matrix(TensorRole::kGateUp, 2 * int64_t{config_.ffn_size}, hidden);
  } else {
    Matrix(TensorRole::kGate, config_.ffn_size, hidden);
    Matrix(TensorRole::kUp, config_.ffn_size, hidden);
  }
  Matrix(TensorRole::kDown, hidden, config_.ffn_size);
}

std::vector<PlannedTensor> Planner::Plan() {
  Matrix(TensorRole::kTokenEmbedding, config_.vocab_size, config_.hidden_size);
  Ones(TensorRole::kOutputNorm, config_.hidden_size);
  if (!config_.tied_embeddings) {
    Matrix(TensorRole::kOutput, config_.vocab_size, config_.hidden_size);
  }
  if (config_.rope.scaling == RopeScaling::kLlama3) {
    Given("rope_freqs.weight", config_.rope.short_factors);
  }
  if (config_.rope.scaling == RopeScaling::kLongRope) {
    Given("rope_factors_short.weight", config_.rope.short_factors);
    Given("rope_factors_long.weight", config_.rope.long_factors);
  }
  for (layer_ = 0; layer_ < config_.layers; ++layer_) PlanLayer();
  return std::move(tensors_);
}

void WriteMetadata(const RandomModelOptions& options, const ModelConfig& config,
                   GgufWriter& writer) {
  const std::string prefix = config.architecture + ".";
  auto set_int = [&](std::string_view key, int value) {
    writer.SetInt(prefix + std::string(key), static_cast<uint32_t>(value));
  };
  auto set_float = [&](std::string_view key, double value) {
    writer.SetFloat(prefix + std::string(key), static_cast<float>(value));
  };
  writer.SetText("general.architecture", config.architecture);
  writer.SetText("general.type", "model");
  writer.SetText("general.name", config.name);
  set_int("context_length", config.context_length);
  set_int("embedding_length", config.hidden_size);
  set_int("block_count", config.layers);
  set_int("feed_forward_length", config.ffn_size);
  set_int("attention.head_count", config.q_heads);
  set_int("attention.head_count_kv", config.kv_heads);
  set_int("attention.key_length", config.head_dim);
  set_int("attention.value_length", config.head_dim);
  set_float("attention.layer_norm_rms_epsilon", config.norm_eps);
  set_int("vocab_size", config.vocab_size);
  set_int("rope.dimension_count", config.rope.dims);
  set_float("rope.freq_base", config.rope.theta);
  if (config.rope.scaling == RopeScaling::kLongRope) {
    set_int("rope.scaling.original_context_length", config.rope.original_context);
    set_float("rope.scaling.attn_factor", config.rope.attention_factor);
  }
  // Engines ask phi3 for a window even where the model has none: then it spans the context.
  const bool needs_window = config.architecture == "phi3";
  if (options.sizes.sliding_window > 0 || needs_window) {
    set_int("attention.sliding_window", options.sizes.sliding_window > 0
                                            ? options.sizes.sliding_window
                                            : config.context_length);
  }
  if (config.attention_softcap > 0) {
    set_float("attn_logit_softcapping", config.attention_softcap);
    set_float("final_logit_softcapping", config.final_softcap);
  }
  WriteMadeVocabulary(config.vocab_size, writer);
}

// Makes one tensor and writes it, in pieces of whole rows.
Status WriteTensor(const PlannedTensor& tensor, uint64_t seed, base::ThreadTeam& team,
                   GgufWriter& writer) {
  if (tensor.deviation == 0.0) return writer.Append(std::as_bytes(std::span(tensor.values)));
  const int64_t rows = std::max<int64_t>(tensor.rows, 1);
  const int64_t row_bytes = static_cast<int64_t>(RowBytes(tensor.type, tensor.cols));
  const int64_t step = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, rows);
  const uint64_t stream = StreamOf(tensor.name);
  QUIRE_ASSIGN_OR_RETURN(Buffer piece, Buffer::Allocate(static_cast<size_t>(step * row_bytes)));
  std::vector<std::vector<float>> scratch(static_cast<size_t>(team.size()),
                                          std::vector<float>(static_cast<size_t>(tensor.cols)));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    team.ParallelFor(count, 8, [&](int64_t begin, int64_t end, int thread) {
      std::vector<float>& row = scratch[static_cast<size_t>(thread)];
      for (int64_t r = begin; r < end; ++r) {
        FillRow(base::CounterRng(seed, stream, static_cast<uint64_t>(first + r)), tensor.deviation,
                row);
        kernels::QuantizeRow(tensor.type, row.data(), tensor.cols, piece.data() + r * row_bytes);
      }
    });
    QUIRE_RETURN_IF_ERROR(writer.Append({piece.data(), static_cast<size_t>(count * row_bytes)}));
  }
  return Ok{};
}

Status CheckBlocks(const ModelConfig& config, DType type) {
  if (!kernels::CanQuantizeTo(type)) {
    return MakeError(ErrorKind::kUsage,
                     "models are made in F32, F16, BF16, Q8_0 or Q4_0, not in {}", Name(type));
  }
  const int block = Traits(type).block_elements;
  for (int cols : {config.hidden_size, config.q_size(), config.ffn_size}) {
    if (cols % block != 0) {
      return MakeError(ErrorKind::kUsage,
                       "{} needs rows that are a multiple of {}; hidden size {}, heads x head size "
                       "{} or FFN size {} is not",
                       Name(type), block, config.hidden_size, config.q_size(), config.ffn_size);
    }
  }
  return Ok{};
}

uint32_t FileType(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ8_0:
      return 7;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

void SetLongRope(const ShapeSizes& sizes, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kLongRope;
  rope.original_context = sizes.longrope_from;
  const double stretch = static_cast<double>(config.context_length) / sizes.longrope_from;
  rope.short_factors = RisingFactors(rope.dims / 2, 2.0);
  rope.long_factors = RisingFactors(rope.dims / 2, std::max(stretch, 1.0) * 2.0);
  rope.attention_factor =
      stretch > 1.0 ? std::sqrt(1.0 + std::log(stretch) / std::log(sizes.longrope_from)) : 1.0;
}

}  // namespace

Result<ModelConfig> ConfigOfShape(const ShapeSizes& sizes) {
  QUIRE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(sizes.architecture));
  ModelConfig config;
  config.architecture = sizes.architecture;
  config.name = "made " + (sizes.name.empty() ? "model" : sizes.name);
  // Engines expect more of the vocabulary of a model whose name holds "phi-3".
  std::replace(config.name.begin(), config.name.end(), '-', ' ');
  config.vocab_size = sizes.vocab_size;
  config.hidden_size = sizes.hidden_size;
  config.layers = sizes.layers;
  config.q_heads = sizes.q_heads;
  config.kv_heads = sizes.kv_heads > 0 ? sizes.kv_heads : sizes.q_heads;
  config.head_dim = sizes.head_dim;
  if (config.head_dim == 0 && sizes.q_heads > 0)
    config.head_dim = sizes.hidden_size / sizes.q_heads;
  config.ffn_size = sizes.ffn_size;
  config.context_length = sizes.context_length;
  config.qk_norm = architecture->qk_norm;
  config.qkv_bias = architecture->qkv_bias;
  config.post_norms = architecture->is_gemma;
  config.activation = architecture->activation;
  config.tied_embeddings = sizes.tied_embeddings;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(std::max(config.head_dim, 1)));
  if (architecture->is_gemma) {
    config.embedding_scale = std::sqrt(static_cast<float>(std::max(config.hidden_size, 1)));
    config.attention_softcap = 50.0f;
    config.final_softcap = 30.0f;
    config.tied_embeddings = true;
  }
  config.rope.pairing = architecture->gguf_pairing;
  config.rope.theta = sizes.rope_theta;
  config.rope.dims = config.head_dim;
  config.rope.original_context = config.context_length;
  if (sizes.llama3_factor > 0.0) {
    config.rope.scaling = RopeScaling::kLlama3;
    config.rope.short_factors = Llama3Factors(config, sizes.llama3_factor);
  } else if (sizes.longrope_from > 1) {
    SetLongRope(sizes, config);
  }
  config.bos_id = kMadeBos;
  config.eos_ids = {kMadeEos};
  if (config.layers > 0 && config.layers <= 4096) {
    config.sliding_windows = WindowsOf(*architecture, config, {.window = sizes.sliding_window});
  }
  Status valid = Validate(config);
  if (!valid.ok()) return MakeError(ErrorKind::kUsage, "{}", valid.error().message);
  if (config.vocab_size < kMadeVocabularyMin) {
    return MakeError(ErrorKind::kUsage, "a made vocabulary has at least {} tokens, not {}",
                     kMadeVocabularyMin, config.vocab_size);
  }
  return config;
}

Status WriteRandomModel(const RandomModelOptions& options, const std::string& path,
                        base::ThreadTeam& team, base::FunctionRef<void(double)> progress) {
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig config, ConfigOfShape(options.sizes));
  QUIRE_RETURN_IF_ERROR(CheckBlocks(config, options.type));
  const std::vector<PlannedTensor> tensors = Planner(options, config).Plan();
  GgufWriter writer;
  WriteMetadata(options, config, writer);
  writer.SetInt("general.file_type", FileType(options.type));
  writer.SetInt("general.quantization_version", 2);
  uint64_t values_total = 0;
  for (const PlannedTensor& tensor : tensors) {
    writer.Declare(tensor.name, tensor.type, tensor.rows, tensor.cols);
    values_total += static_cast<uint64_t>(std::max<int64_t>(tensor.rows, 1) * tensor.cols);
  }
  QUIRE_RETURN_IF_ERROR(writer.Open(path));
  uint64_t values_done = 0;
  for (const PlannedTensor& tensor : tensors) {
    QUIRE_RETURN_IF_ERROR(WriteTensor(tensor, options.seed, team, writer));
    values_done += static_cast<uint64_t>(std::max<int64_t>(tensor.rows, 1) * tensor.cols);
    progress(static_cast<double>(values_done) / static_cast<double>(values_total));
  }
  return writer.Finish();
}

}  // namespace quire::model
