// ModelConfig: everything in which one architecture differs from another, as data.
//
// The forward pass (transformer.h) has no branch per architecture; a new model of a known kind is a
// new set of values here. Filled from GGUF metadata or from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kvstore/kv_layout.h"

namespace quire::model {

// Which two channels of a head form a rotated pair.
enum class RopePairing {
  kAdjacent,  // (2i, 2i+1): GGUF files of the llama architecture, whose Q/K rows are permuted
  kHalves,    // (i, i + rope_dims/2): everything else ("rotate half")
};

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope };

// Rotary position embedding (2104.09864) and its extensions to longer contexts.
struct RopeConfig {
  RopePairing pairing = RopePairing::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  int dims = 0;         // rotated channels of a head, even, <= head_dim
  double factor = 1.0;  // linear, llama3, yarn: how many times the context was stretched
  int original_context = 0;

  // llama3: wavelengths above/below these fractions of the original context are scaled/kept.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;

  // yarn (2309.00071).
  double beta_fast = 32.0;
  double beta_slow = 1.0;

  // yarn and longrope: multiplies the rotated Q and K; readers of files always set it. 0: yarn's
  // own 1 + 0.1 ln(factor).
  double attention_factor = 0.0;

  // Divisors per pair [dims/2], where the file brings its own: longrope (2402.13753) has one set
  // for contexts up to original_context and one for longer ones; GGUF stores llama3's as "short".
  std::vector<float> short_factors;
  std::vector<float> long_factors;
};

enum class Activation { kSilu, kGeluTanh };

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", ... as the file names it
  std::string name;          // for people; may be empty

  int vocab_size = 0;
  int hidden_size = 0;
  int layers = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn_size = 0;
  int context_length = 0;  // positions the model was made for

  float norm_eps = 1e-5f;
  bool norm_weight_plus_one = false;  // gemma in safetensors: weights are stored minus one
  bool qk_norm = false;               // qwen3: RMS norm of each head of Q and K before RoPE
  bool post_norms = false;            // gemma2: norms after attention and after the MLP
  bool qkv_bias = false;
  bool output_bias = false;  // bias of the attention's output projection
  bool mlp_bias = false;
  bool tied_embeddings = false;
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;      // gemma: sqrt(hidden_size)
  float attention_scale = 0.0f;      // multiplies q.k; 1/sqrt(head_dim) unless the model says else
  float attention_softcap = 0.0f;    // 0: none; else s = cap * tanh(s / cap)
  float final_softcap = 0.0f;        // the same on logits
  std::vector<int> sliding_windows;  // [layers] tokens a query sees, itself included; 0: all

  RopeConfig rope;

  std::optional<TokenId> bos_id;
  std::vector<TokenId> eos_ids;

  int group() const { return q_heads / kv_heads; }
  int q_size() const { return q_heads * head_dim; }
  int kv_size() const { return kv_heads * head_dim; }
};

// Checks what the forward pass relies on (positive sizes, divisibility, list lengths, limits that
// keep sizes from overflowing). kUnsupported or kInvalid with one sentence.
Status Validate(const ModelConfig& config);

// The geometry that the layers ask of the KV cache.
kvstore::KvGeometry KvGeometryOf(const ModelConfig& config);

// Weights that every token passes through: all matrices but the embedding, which is only looked up
// (unless it is the output's matrix as well). Norms and biases, a few in ten thousand, are left
// out.
int64_t WeightsPerToken(const ModelConfig& config);

}  // namespace quire::model
