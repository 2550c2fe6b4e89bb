// ModelFiles: whatever `--model` names, opened: a GGUF file, the first of a split GGUF, or a
// Hugging Face directory (config.json, safetensors, tokenizer files).
//
// Owns the maps; tensors, names and the GgufFile point into it and live as long as it does. A file
// that holds a vocabulary only, or a directory with a tokenizer only, opens too: then config() or
// Tensor() says what is missing to those who need it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/gguf.h"
#include "model/model_config.h"
#include "model/safetensors.h"
#include "model/tensor_names.h"
#include "tensor/view.h"

namespace quire::model {

// What the model's makers suggest for sampling. Absent: they say nothing.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int> max_new_tokens;
};

struct TensorInfo {
  std::string_view name;
  std::string type;              // as the file names it, also types that nothing here decodes
  std::vector<int64_t> extents;  // outermost first
  uint64_t bytes = 0;            // 0 if the type is unknown
};

class ModelFiles {
 public:
  static Result<ModelFiles> Open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const;  // of the files with weights
  int shards() const;
  std::string_view format() const { return gguf_ ? "GGUF" : "safetensors"; }

  // An error if the model's kind is not supported or there is no description of it.
  const Result<ModelConfig>& config() const { return config_; }

  // Null for a directory.
  const GgufFile* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  // The tokenizer's files in a directory; absent in GGUF, whose metadata holds the vocabulary.
  const std::optional<std::string>& tokenizer_json_path() const { return tokenizer_json_; }
  const std::optional<std::string>& tokenizer_model_path() const { return tokenizer_model_; }
  const std::optional<std::string>& tokenizer_config_path() const { return tokenizer_config_; }

  // The Jinja source, if the model has one.
  const std::optional<std::string>& chat_template() const { return chat_template_; }
  const GenerationDefaults& generation_defaults() const { return generation_; }

  bool has_tensors() const;
  std::vector<TensorInfo> ListTensors() const;
  bool HasTensor(std::string_view name) const;
  // kNotFound or kUnsupported. Lives as long as this object.
  Result<StoredTensor> Tensor(std::string_view name) const;
  NameStyle name_style() const;

  // Lets the pages of a tensor's bytes leave memory; they come back when touched.
  void Evict(std::span<const std::byte> range) const;

 private:
  explicit ModelFiles(std::string path)
      : path_(std::move(path)),
        config_(MakeError(ErrorKind::kNotFound, "'{}' holds no model configuration", path_)) {}

  Status OpenGguf();
  Status OpenDirectory();
  Status ReadDirectoryConfig();
  Status ReadGenerationConfig(const std::string& file);
  Status ReadChatTemplate();

  std::string path_;
  std::optional<GgufFile> gguf_;
  std::optional<Safetensors> safetensors_;
  Result<ModelConfig> config_;
  std::optional<std::string> tokenizer_json_;
  std::optional<std::string> tokenizer_model_;
  std::optional<std::string> tokenizer_config_;
  std::optional<std::string> chat_template_;
  GenerationDefaults generation_;
};

}  // namespace quire::model
