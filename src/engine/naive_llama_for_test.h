// NaiveLlama: a model of the llama architecture in double precision, one token at a time, with
// plain loops and whole softmaxes. What tests of token eviction are held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "engine/model_loader.h"
#include "kernels/dequantize.h"

namespace quire::engine {

class NaiveLlama {
 public:
  struct Token {
    int position = 0;
    std::vector<double> key;  // before RoPE
    std::vector<double> value;
    double score = 0;  // attention it got, summed: mean over the group's q heads
  };

  // What turns queries and keys: their position, or their place among the tokens that are left.
  enum class Angles { kPosition, kSlot };

  NaiveLlama(const LoadedModel& model, Angles angles) : config_(model.config()), angles_(angles) {
    const model::ModelFiles& files = model.files();
    const auto read = [&](model::TensorRole role, int layer) {
      const std::string name = model::TensorName(files.name_style(), role, layer);
      return Read(files.Tensor(name).value());
    };
    using model::TensorRole;
    embedding_ = read(TensorRole::kTokenEmbedding, 0);
    output_norm_ = read(TensorRole::kOutputNorm, 0);
    const bool tied = config_.tied_embeddings;
    output_ = read(tied ? TensorRole::kTokenEmbedding : TensorRole::kOutput, 0);
    for (int l = 0; l < config_.layers; ++l) {
      layers_.push_back({read(TensorRole::kAttentionNorm, l), read(TensorRole::kFfnNorm, l),
                         read(TensorRole::kQ, l), read(TensorRole::kK, l), read(TensorRole::kV, l),
                         read(TensorRole::kO, l), read(TensorRole::kGate, l),
                         read(TensorRole::kUp, l), read(TensorRole::kDown, l)});
    }
    kept_.resize(static_cast<size_t>(config_.layers) * config_.kv_heads);
  }

  // [layers * kv_heads]: the tokens that are left, in any order.
  std::vector<std::vector<Token>>& kept() { return kept_; }

  // Computes one token, which sees all that is left and itself: its logits.
  std::vector<double> Forward(TokenId token, int position) {
    const int h = config_.hidden_size;
    std::vector<double> hidden(embedding_.begin() + static_cast<ptrdiff_t>(token) * h,
                               embedding_.begin() + static_cast<ptrdiff_t>(token + 1) * h);
    for (int l = 0; l < config_.layers; ++l) {
      const Layer& layer = layers_[l];
      const std::vector<double> x = Norm(hidden, layer.attention_norm);
      const std::vector<double> attended = Attend(layer, l, x, position);
      Add(hidden, Multiply(layer.o, attended));
      const std::vector<double> y = Norm(hidden, layer.ffn_norm);
      std::vector<double> gate = Multiply(layer.gate, y);
      const std::vector<double> up = Multiply(layer.up, y);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      Add(hidden, Multiply(layer.down, gate));
    }
    return Multiply(output_, Norm(hidden, output_norm_));
  }

 private:
  struct Layer {
    std::vector<double> attention_norm, ffn_norm, q, k, v, o, gate, up, down;
  };

  static std::vector<double> Read(const StoredTensor& tensor) {
    std::vector<float> row(tensor.cols);
    std::vector<double> all;
    for (int64_t r = 0; r < tensor.rows; ++r) {
      kernels::DequantizeRow(tensor.type, tensor.row(r), tensor.cols, row.data());
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  static std::vector<double> Multiply(const std::vector<double>& matrix,
                                      const std::vector<double>& x) {
    std::vector<double> out(matrix.size() / x.size(), 0.0);
    for (size_t r = 0; r < out.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) out[r] += matrix[r * x.size() + c] * x[c];
    }
    return out;
  }

  static void Add(std::vector<double>& to, const std::vector<double>& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  std::vector<double> Norm(const std::vector<double>& x, const std::vector<double>& weight) const {
    double squares = 0;
    for (double value : x) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_eps);
    std::vector<double> out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * factor * weight[i];
    return out;
  }

  std::vector<double> Rotated(std::vector<double> head, int place) const {
    for (int i = 0; i < config_.rope.dims / 2; ++i) {
      const double angle = place * std::pow(config_.rope.theta, -2.0 * i / config_.rope.dims);
      const double x = head[2 * i];
      const double y = head[2 * i + 1];
      head[2 * i] = x * std::cos(angle) - y * std::sin(angle);
      head[2 * i + 1] = x * std::sin(angle) + y * std::cos(angle);
    }
    return head;
  }

  static std::vector<double> Head(const std::vector<double>& row, int head, int head_dim) {
    return {row.begin() + static_cast<ptrdiff_t>(head) * head_dim,
            row.begin() + static_cast<ptrdiff_t>(head + 1) * head_dim};
  }

  std::vector<double> Attend(const Layer& layer, int l, const std::vector<double>& x,
                             int position) {
    const std::vector<double> q = Multiply(layer.q, x);
    const std::vector<double> k = Multiply(layer.k, x);
    const std::vector<double> v = Multiply(layer.v, x);
    const int d = config_.head_dim;
    std::vector<double> out;
    for (int h = 0; h < config_.q_heads; ++h) {
      const int kv_head = h / config_.group();
      std::vector<Token>& tokens = kept_[static_cast<size_t>(l) * config_.kv_heads + kv_head];
      if (h % config_.group() == 0) {
        tokens.push_back({position, Head(k, kv_head, d), Head(v, kv_head, d)});
      }
      const int slot = static_cast<int>(tokens.size()) - 1;
      const std::vector<double> query = Rotated(Head(q, h, d), PlaceOf(position, slot));
      std::vector<double> weights;
      for (size_t i = 0; i < tokens.size(); ++i) {
        const std::vector<double> key =
            Rotated(tokens[i].key, PlaceOf(tokens[i].position, static_cast<int>(i)));
        double score = 0;
        for (int c = 0; c < d; ++c) score += query[c] * key[c];
        weights.push_back(score * config_.attention_scale);
      }
      const double largest = *std::ranges::max_element(weights);
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      std::vector<double> head(d, 0.0);
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i].score += weights[i] / sum / config_.group();
        for (int c = 0; c < d; ++c) head[c] += weights[i] / sum * tokens[i].value[c];
      }
      out.insert(out.end(), head.begin(), head.end());
    }
    return out;
  }

  int PlaceOf(int position, int slot) const {
    return angles_ == Angles::kPosition ? position : slot;
  }

  const model::ModelConfig& config_;
  Angles angles_;
  std::vector<double> embedding_, output_norm_, output_;
  std::vector<Layer> layers_;
  std::vector<std::vector<Token>> kept_;
};

}  // namespace quire::engine
