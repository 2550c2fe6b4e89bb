// Small models written by tests: Hugging Face directories of every architecture, and the bytes to
// make damaged ones from. For tests of this folder only.
#pragma once

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "base/rng.h"

namespace quire::model {

// A directory that is gone when the test is.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string_view name)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("quire-model-test-{}-{}", ::getpid(), name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path() const { return path_.string(); }
  std::string File(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct TestTensor {
  std::string name;
  int rows = 0;  // 0: one dimension
  int cols = 0;
};

// The value at `index` of a test tensor: small, and different everywhere.
inline float TestValue(std::string_view name, int64_t index) {
  base::CounterRng rng(std::hash<std::string_view>()(name), 0, static_cast<uint64_t>(index));
  return static_cast<float>(rng.NextUnit() - 0.5);
}

// A safetensors file with these tensors in F32.
inline std::string SafetensorsBytes(const std::vector<TestTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    const int count = tensor.cols * (tensor.rows == 0 ? 1 : tensor.rows);
    const std::string shape = tensor.rows == 0 ? fmt::format("[{}]", tensor.cols)
                                               : fmt::format("[{},{}]", tensor.rows, tensor.cols);
    header += fmt::format(",\"{}\":{{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          tensor.name, shape, data.size(), data.size() + 4 * count);
    for (int i = 0; i < count; ++i) {
      const float value = TestValue(tensor.name, i);
      data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  header += "}";
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

// Sizes shared by all small models: 2 layers, 4 heads of 8, 2 KV heads.
inline constexpr int kTestVocab = 40;
inline constexpr int kTestHidden = 32;
inline constexpr int kTestFfn = 48;

// config.json of a small model; `extra` are further fields, each followed by a comma.
inline std::string TestConfig(std::string_view hf_class, std::string_view extra = "") {
  return fmt::format(
      "{{\"architectures\":[\"{}\"],{}\"vocab_size\":{},\"hidden_size\":{},"
      "\"intermediate_size\":{},\"num_hidden_layers\":2,\"num_attention_heads\":4,"
      "\"num_key_value_heads\":2,\"head_dim\":8,\"max_position_embeddings\":4096,"
      "\"rms_norm_eps\":1e-6,\"bos_token_id\":1,\"eos_token_id\":2}}",
      hf_class, extra, kTestVocab, kTestHidden, kTestFfn);
}

// All tensors of that model, as the class names them. Tied, so without lm_head.
inline std::vector<TestTensor> TestTensors(std::string_view hf_class) {
  const bool gemma = hf_class == "Gemma2ForCausalLM";
  const bool fused = hf_class == "Phi3ForCausalLM";
  std::vector<TestTensor> tensors = {{"model.embed_tokens.weight", kTestVocab, kTestHidden},
                                     {"model.norm.weight", 0, kTestHidden}};
  for (int layer = 0; layer < 2; ++layer) {
    auto add = [&](std::string_view name, int rows, int cols) {
      tensors.push_back({fmt::format("model.layers.{}.{}", layer, name), rows, cols});
    };
    add("input_layernorm.weight", 0, kTestHidden);
    add("post_attention_layernorm.weight", 0, kTestHidden);
    if (gemma) {
      add("pre_feedforward_layernorm.weight", 0, kTestHidden);
      add("post_feedforward_layernorm.weight", 0, kTestHidden);
    }
    if (fused) {
      add("self_attn.qkv_proj.weight", 64, kTestHidden);
      add("mlp.gate_up_proj.weight", 2 * kTestFfn, kTestHidden);
    } else {
      add("self_attn.q_proj.weight", 32, kTestHidden);
      add("self_attn.k_proj.weight", 16, kTestHidden);
      add("self_attn.v_proj.weight", 16, kTestHidden);
      add("mlp.gate_proj.weight", kTestFfn, kTestHidden);
      add("mlp.up_proj.weight", kTestFfn, kTestHidden);
    }
    add("self_attn.o_proj.weight", kTestHidden, 32);
    add("mlp.down_proj.weight", kTestHidden, kTestFfn);
    if (hf_class == "Qwen2ForCausalLM") {
      add("self_attn.q_proj.bias", 0, 32);
      add("self_attn.k_proj.bias", 0, 16);
      add("self_attn.v_proj.bias", 0, 16);
    }
    if (hf_class == "Qwen3ForCausalLM") {
      add("self_attn.q_norm.weight", 0, 8);
      add("self_attn.k_norm.weight", 0, 8);
    }
  }
  return tensors;
}

}  // namespace quire::model
