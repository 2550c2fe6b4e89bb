#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>

#include "kernels/dequantize.h"

namespace quire::model {

namespace {

// Source bytes copied before their pages are given back.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Rows of the file that become a matrix.
struct PackJob {
  kernels::PackedMatrix* matrix;
  StoredTensor rows;
};

StoredTensor RowRange(const StoredTensor& tensor, int64_t first, int64_t count) {
  return {tensor.type, count, tensor.cols, tensor.row(first)};
}

std::span<const std::byte> BytesOf(const StoredTensor& tensor) {
  return {tensor.data, tensor.bytes()};
}

// Finds every tensor of the model and checks its shape; what remains to be done are the jobs.
class Collector {
 public:
  Collector(const ModelFiles& files, const ModelConfig& config, Weights& weights)
      : files_(files), config_(config), style_(files.name_style()), weights_(weights) {}

  Status CollectModel();
  Status CheckNothingLeft() const;
  std::vector<PackJob>& jobs() { return jobs_; }

 private:
  Status CollectLayer(int layer);
  Status CollectNorms(int layer, LayerWeights& weights);
  Status CollectQkv(int layer, LayerWeights& weights);
  Status CollectMlp(int layer, LayerWeights& weights);

  bool Has(TensorRole role, int layer) const {
    return files_.HasTensor(TensorName(style_, role, layer));
  }
  Result<StoredTensor> Matrix(TensorRole role, int layer, int64_t rows, int64_t cols);
  Status Pack(TensorRole role, int layer, int64_t rows, int64_t cols,
              kernels::PackedMatrix& matrix);
  Result<std::vector<float>> Vector(const std::string& name, int64_t size);
  Status Norm(TensorRole role, int layer, int64_t size, std::vector<float>& out);
  Status Bias(TensorRole role, int layer, int64_t size, std::vector<float>& out);

  const ModelFiles& files_;
  const ModelConfig& config_;
  const NameStyle style_;
  Weights& weights_;
  std::vector<PackJob> jobs_;
  std::set<std::string, std::less<>> used_;
};

Error WrongShape(std::string_view name, const StoredTensor& found, int64_t rows, int64_t cols) {
  return MakeError(ErrorKind::kInvalid, "tensor '{}' is {} x {}; {} x {} is expected", name,
                   found.rows, found.cols, rows, cols);
}

Result<StoredTensor> Collector::Matrix(TensorRole role, int layer, int64_t rows, int64_t cols) {
  std::string name = TensorName(style_, role, layer);
  QUIRE_ASSIGN_OR_RETURN(StoredTensor tensor, files_.Tensor(name));
  if (tensor.rows != rows || tensor.cols != cols) return WrongShape(name, tensor, rows, cols);
  used_.insert(std::move(name));
  return tensor;
}

Status Collector::Pack(TensorRole role, int layer, int64_t rows, int64_t cols,
                       kernels::PackedMatrix& matrix) {
  QUIRE_ASSIGN_OR_RETURN(StoredTensor tensor, Matrix(role, layer, rows, cols));
  jobs_.push_back({&matrix, tensor});
  return Ok{};
}

Result<std::vector<float>> Collector::Vector(const std::string& name, int64_t size) {
  QUIRE_ASSIGN_OR_RETURN(StoredTensor tensor, files_.Tensor(name));
  if (tensor.rows != 1 || tensor.cols != size) return WrongShape(name, tensor, 1, size);
  std::vector<float> values(static_cast<size_t>(size));
  kernels::DequantizeRow(tensor.type, tensor.data, size, values.data());
  used_.insert(name);
  return values;
}

Status Collector::Norm(TensorRole role, int layer, int64_t size, std::vector<float>& out) {
  QUIRE_ASSIGN_OR_RETURN(out, Vector(TensorName(style_, role, layer), size));
  if (config_.norm_weight_plus_one) {
    for (float& weight : out) weight += 1.0f;
  }
  return Ok{};
}

Status Collector::Bias(TensorRole role, int layer, int64_t size, std::vector<float>& out) {
  QUIRE_ASSIGN_OR_RETURN(out, Vector(TensorName(style_, role, layer, TensorPart::kBias), size));
  return Ok{};
}

Status Collector::CollectModel() {
  const int64_t vocab = config_.vocab_size;
  const int64_t hidden = config_.hidden_size;
  QUIRE_ASSIGN_OR_RETURN(weights_.token_embedding,
                         Matrix(TensorRole::kTokenEmbedding, 0, vocab, hidden));
  const TensorRole output =
      config_.tied_embeddings ? TensorRole::kTokenEmbedding : TensorRole::kOutput;
  QUIRE_RETURN_IF_ERROR(Pack(output, 0, vocab, hidden, weights_.output));
  QUIRE_RETURN_IF_ERROR(Norm(TensorRole::kOutputNorm, 0, hidden, weights_.output_norm));
  // No reallocation: jobs point to the layers. At most kMaxLayers of them (Validate).
  weights_.layers.reserve(static_cast<size_t>(config_.layers));
  for (int layer = 0; layer < config_.layers; ++layer) {
    QUIRE_RETURN_IF_ERROR(CollectLayer(layer));
  }
  return Ok{};
}

Status Collector::CollectLayer(int layer) {
  LayerWeights& weights = weights_.layers.emplace_back();
  QUIRE_RETURN_IF_ERROR(CollectNorms(layer, weights));
  QUIRE_RETURN_IF_ERROR(CollectQkv(layer, weights));
  QUIRE_RETURN_IF_ERROR(
      Pack(TensorRole::kO, layer, config_.hidden_size, config_.q_size(), weights.o));
  if (config_.output_bias) {
    QUIRE_RETURN_IF_ERROR(Bias(TensorRole::kO, layer, config_.hidden_size, weights.o_bias));
  }
  return CollectMlp(layer, weights);
}

Status Collector::CollectNorms(int layer, LayerWeights& weights) {
  const int64_t hidden = config_.hidden_size;
  QUIRE_RETURN_IF_ERROR(Norm(TensorRole::kAttentionNorm, layer, hidden, weights.attention_norm));
  QUIRE_RETURN_IF_ERROR(Norm(TensorRole::kFfnNorm, layer, hidden, weights.ffn_norm));
  if (config_.post_norms) {
    QUIRE_RETURN_IF_ERROR(
        Norm(TensorRole::kPostAttentionNorm, layer, hidden, weights.post_attention_norm));
    QUIRE_RETURN_IF_ERROR(Norm(TensorRole::kPostFfnNorm, layer, hidden, weights.post_ffn_norm));
  }
  if (config_.qk_norm) {
    QUIRE_RETURN_IF_ERROR(Norm(TensorRole::kQNorm, layer, config_.head_dim, weights.q_norm));
    QUIRE_RETURN_IF_ERROR(Norm(TensorRole::kKNorm, layer, config_.head_dim, weights.k_norm));
  }
  return Ok{};
}

Status Collector::CollectQkv(int layer, LayerWeights& weights) {
  const int64_t hidden = config_.hidden_size;
  const int64_t q = config_.q_size();
  const int64_t kv = config_.kv_size();
  if (!Has(TensorRole::kQ, layer) && Has(TensorRole::kQkv, layer)) {
    QUIRE_ASSIGN_OR_RETURN(StoredTensor fused, Matrix(TensorRole::kQkv, layer, q + 2 * kv, hidden));
    jobs_.push_back({&weights.q, RowRange(fused, 0, q)});
    jobs_.push_back({&weights.k, RowRange(fused, q, kv)});
    jobs_.push_back({&weights.v, RowRange(fused, q + kv, kv)});
    if (!config_.qkv_bias) return Ok{};
    std::vector<float> bias;
    QUIRE_RETURN_IF_ERROR(Bias(TensorRole::kQkv, layer, q + 2 * kv, bias));
    weights.q_bias.assign(bias.begin(), bias.begin() + q);
    weights.k_bias.assign(bias.begin() + q, bias.begin() + q + kv);
    weights.v_bias.assign(bias.begin() + q + kv, bias.end());
    return Ok{};
  }
  QUIRE_RETURN_IF_ERROR(Pack(TensorRole::kQ, layer, q, hidden, weights.q));
  QUIRE_RETURN_IF_ERROR(Pack(TensorRole::kK, layer, kv, hidden, weights.k));
  QUIRE_RETURN_IF_ERROR(Pack(TensorRole::kV, layer, kv, hidden, weights.v));
  if (!config_.qkv_bias) return Ok{};
  QUIRE_RETURN_IF_ERROR(Bias(TensorRole::kQ, layer, q, weights.q_bias));
  QUIRE_RETURN_IF_ERROR(Bias(TensorRole::kK, layer, kv, weights.k_bias));
  return Bias(TensorRole::kV, layer, kv, weights.v_bias);
}

Status Collector::CollectMlp(int layer, LayerWeights& weights) {
  const int64_t hidden = config_.hidden_size;
  const int64_t ffn = config_.ffn_size;
  if (!Has(TensorRole::kGate, layer) && Has(TensorRole::kGateUp, layer)) {
    QUIRE_ASSIGN_OR_RETURN(StoredTensor fused, Matrix(TensorRole::kGateUp, layer, 2 * ffn, hidden));
    jobs_.push_back({&weights.gate, RowRange(fused, 0, ffn)});
    jobs_.push_back({&weights.up, RowRange(fused, ffn, ffn)});
  } else {
    QUIRE_RETURN_IF_ERROR(Pack(TensorRole::kGate, layer, ffn, hidden, weights.gate));
    QUIRE_RETURN_IF_ERROR(Pack(TensorRole::kUp, layer, ffn, hidden, weights.up));
  }
  QUIRE_RETURN_IF_ERROR(Pack(TensorRole::kDown, layer, hidden, ffn, weights.down));
  if (!config_.mlp_bias) return Ok{};
  QUIRE_RETURN_IF_ERROR(Bias(TensorRole::kGate, layer, ffn, weights.gate_bias));
  QUIRE_RETURN_IF_ERROR(Bias(TensorRole::kUp, layer, ffn, weights.up_bias));
  return Bias(TensorRole::kDown, layer, hidden, weights.down_bias);
}

// A tensor that nobody asked for means a model that computes something else.
Status Collector::CheckNothingLeft() const {
  for (const TensorInfo& tensor : files_.ListTensors()) {
    if (used_.contains(tensor.name) || IsDerivedTensor(tensor.name)) continue;
    if (config_.tied_embeddings && tensor.name == TensorName(style_, TensorRole::kOutput, 0)) {
      continue;
    }
    return MakeError(ErrorKind::kUnsupported,
                     "the model has a tensor '{:.100}', which has no place in a supported {} model",
                     tensor.name, config_.architecture);
  }
  return Ok{};
}

// Copies the rows into the matrix, piece by piece.
void RunJob(const ModelFiles& files, const PackJob& job) {
  const StoredTensor& source = job.rows;
  const int64_t step = std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(source.row_bytes()));
  for (int64_t row = 0; row < source.rows; row += step) {
    StoredTensor piece = RowRange(source, row, std::min(step, source.rows - row));
    job.matrix->PackRows(row, piece);
    files.Evict(BytesOf(piece));
  }
}

}  // namespace

uint64_t Weights::bytes() const {
  uint64_t total = output.bytes() + output_norm.size() * sizeof(float);
  for (const LayerWeights& layer : layers) {
    for (const auto* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      total += matrix->bytes();
    }
    for (const auto* vector :
         {&layer.attention_norm, &layer.post_attention_norm, &layer.ffn_norm, &layer.post_ffn_norm,
          &layer.q_norm, &layer.k_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.o_bias,
          &layer.gate_bias, &layer.up_bias, &layer.down_bias}) {
      total += vector->size() * sizeof(float);
    }
  }
  return total;
}

Result<Weights> LoadWeights(const ModelFiles& files, base::ThreadTeam& team,
                            base::FunctionRef<void(double)> progress) {
  if (!files.config().ok()) return files.config().error();
  if (!files.has_tensors()) {
    return MakeError(ErrorKind::kNotFound,
                     "'{}' holds a vocabulary and no weights; a whole model is needed",
                     files.path());
  }
  Weights weights;
  Collector collector(files, *files.config(), weights);
  Status collected = collector.CollectModel();
  if (collected.ok()) collected = collector.CheckNothingLeft();
  if (!collected.ok()) {
    return MakeError(collected.error().kind, "cannot load '{}': {}", files.path(),
                     collected.error().message);
  }
  std::vector<PackJob>& jobs = collector.jobs();
  uint64_t bytes_total = 0;
  for (const PackJob& job : jobs) {
    *job.matrix = kernels::PackedMatrix(job.rows.type, job.rows.rows, job.rows.cols);
    bytes_total += job.rows.bytes();
  }
  std::atomic<uint64_t> bytes_done{0};
  team.ParallelFor(static_cast<int64_t>(jobs.size()), 1,
                   [&](int64_t begin, int64_t end, int thread) {
                     for (int64_t i = begin; i < end; ++i) {
                       RunJob(files, jobs[i]);
                       bytes_done += jobs[i].rows.bytes();
                     }
                     if (thread == 0) progress(static_cast<double>(bytes_done) / bytes_total);
                   });
  progress(1.0);
  return weights;
}

}  // namespace quire::model
