#include "model/model_files.h"

#include <filesystem>

#include "model/gguf_config.h"
#include "model/hf_config.h"
#include "model/json_fields.h"

namespace quire::model {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::optional<std::string> IfExists(const fs::path& path) {
  if (!Exists(path)) return std::nullopt;
  return path.string();
}

std::optional<double> NumberIn(JsonFields& fields, std::string_view key) {
  if (!fields.Has(key)) return std::nullopt;
  return fields.Number(key, 0.0);
}

std::optional<int> IntIn(JsonFields& fields, std::string_view key) {
  if (!fields.Has(key)) return std::nullopt;
  return fields.Int(key, 0);
}

// One template, or a list of named ones of which "default" is meant.
std::optional<std::string> TemplateIn(const json::object& config) {
  const json::value* value = config.if_contains("chat_template");
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string(value->get_string());
  if (!value->is_array()) return std::nullopt;
  for (const json::value& entry : value->get_array()) {
    const json::object* named = entry.if_object();
    if (named == nullptr) continue;
    const json::value* name = named->if_contains("name");
    const json::value* source = named->if_contains("template");
    if (name != nullptr && source != nullptr && name->is_string() && source->is_string() &&
        name->get_string() == "default") {
      return std::string(source->get_string());
    }
  }
  return std::nullopt;
}

GenerationDefaults GgufGeneration(const GgufFile& file) {
  GenerationDefaults defaults;
  defaults.temperature = file.GetFloat("general.sampling.temp");
  defaults.top_p = file.GetFloat("general.sampling.top_p");
  defaults.min_p = file.GetFloat("general.sampling.min_p");
  defaults.repetition_penalty = file.GetFloat("general.sampling.penalty_repeat");
  if (std::optional<int64_t> top_k = file.GetInt("general.sampling.top_k");
      top_k && *top_k >= 0 && *top_k <= std::numeric_limits<int>::max()) {
    defaults.top_k = static_cast<int>(*top_k);
  }
  return defaults;
}

}  // namespace

Result<ModelFiles> ModelFiles::Open(const std::string& path) {
  ModelFiles files(path);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    QUIRE_RETURN_IF_ERROR(files.OpenDirectory());
    return files;
  }
  if (fs::path(path).extension() == ".safetensors" && Exists(path)) {
    return MakeError(ErrorKind::kUsage,
                     "'{}' is one file of a model; give the directory that also holds config.json",
                     path);
  }
  QUIRE_RETURN_IF_ERROR(files.OpenGguf());
  return files;
}

Status ModelFiles::OpenGguf() {
  QUIRE_ASSIGN_OR_RETURN(gguf_, GgufFile::Open(path_));
  config_ = ConfigFromGguf(*gguf_);
  if (!config_.ok()) {
    config_ =
        MakeError(config_.error().kind, "cannot use '{}': {}", path_, config_.error().message);
  }
  if (std::optional<std::string_view> text = gguf_->GetString("tokenizer.chat_template")) {
    chat_template_ = std::string(*text);
  }
  generation_ = GgufGeneration(*gguf_);
  return Ok{};
}

Status ModelFiles::OpenDirectory() {
  const fs::path root(path_);
  tokenizer_json_ = IfExists(root / "tokenizer.json");
  tokenizer_model_ = IfExists(root / "tokenizer.model");
  tokenizer_config_ = IfExists(root / "tokenizer_config.json");
  const bool has_config = Exists(root / "config.json");
  if (!has_config && !tokenizer_json_ && !tokenizer_model_) {
    return MakeError(
        ErrorKind::kNotFound,
        "'{}' holds no model: config.json with safetensors is expected in a directory; "
        "to use a GGUF file, give its own path",
        path_);
  }
  if (Exists(root / "model.safetensors") || Exists(root / "model.safetensors.index.json")) {
    QUIRE_ASSIGN_OR_RETURN(safetensors_, Safetensors::OpenDirectory(path_));
  }
  if (has_config) QUIRE_RETURN_IF_ERROR(ReadDirectoryConfig());
  if (std::optional<std::string> file = IfExists(root / "generation_config.json")) {
    QUIRE_RETURN_IF_ERROR(ReadGenerationConfig(*file));
  }
  return ReadChatTemplate();
}

// A malformed config.json is an error now; one that describes something unsupported only to those
// who need the model itself.
Status ModelFiles::ReadDirectoryConfig() {
  const std::string file = fs::path(path_) / "config.json";
  QUIRE_ASSIGN_OR_RETURN(json::object object, ReadJsonObject(file));
  config_ = ConfigFromHf(object, file);
  return Ok{};
}

Status ModelFiles::ReadGenerationConfig(const std::string& file) {
  QUIRE_ASSIGN_OR_RETURN(json::object object, ReadJsonObject(file));
  JsonFields fields(object, file);
  generation_.do_sample = fields.Bool("do_sample");
  generation_.temperature = NumberIn(fields, "temperature");
  generation_.top_k = IntIn(fields, "top_k");
  generation_.top_p = NumberIn(fields, "top_p");
  generation_.min_p = NumberIn(fields, "min_p");
  generation_.repetition_penalty = NumberIn(fields, "repetition_penalty");
  generation_.max_new_tokens = IntIn(fields, "max_new_tokens");
  std::vector<int32_t> eos = fields.IntOrInts("eos_token_id");
  QUIRE_RETURN_IF_ERROR(fields.status());
  if (!config_.ok() || eos.empty()) return Ok{};
  config_->eos_ids = std::move(eos);
  return Validate(*config_);
}

Status ModelFiles::ReadChatTemplate() {
  if (std::optional<std::string> file = IfExists(fs::path(path_) / "chat_template.jinja")) {
    QUIRE_ASSIGN_OR_RETURN(chat_template_, ReadTextFile(*file, kMaxTemplateBytes));
    return Ok{};
  }
  if (!tokenizer_config_) return Ok{};
  QUIRE_ASSIGN_OR_RETURN(json::object object, ReadJsonObject(*tokenizer_config_));
  chat_template_ = TemplateIn(object);
  return Ok{};
}

uint64_t ModelFiles::file_bytes() const {
  if (gguf_) return gguf_->file_bytes();
  return safetensors_ ? safetensors_->file_bytes() : 0;
}

int ModelFiles::shards() const {
  if (gguf_) return gguf_->shards();
  return safetensors_ ? safetensors_->shards() : 0;
}

bool ModelFiles::has_tensors() const {
  if (gguf_) return !gguf_->tensors().empty();
  return safetensors_ && !safetensors_->tensors().empty();
}

std::vector<TensorInfo> ModelFiles::ListTensors() const {
  std::vector<TensorInfo> infos;
  if (gguf_) {
    for (const GgufTensor& tensor : gguf_->tensors()) {
      TensorInfo info{tensor.name, GgufTensorTypeName(tensor.type_id), {}, tensor.data.size()};
      for (int i = tensor.dimensions - 1; i >= 0; --i) info.extents.push_back(tensor.extents[i]);
      infos.push_back(std::move(info));
    }
  } else if (safetensors_) {
    for (const auto& [name, tensor] : safetensors_->tensors()) {
      infos.push_back({name, tensor.dtype, tensor.shape, tensor.data.size()});
    }
  }
  return infos;
}

bool ModelFiles::HasTensor(std::string_view name) const {
  if (gguf_) return gguf_->FindTensor(name) != nullptr;
  return safetensors_ && safetensors_->FindTensor(name) != nullptr;
}

Result<StoredTensor> ModelFiles::Tensor(std::string_view name) const {
  if (gguf_) return gguf_->Tensor(name);
  if (safetensors_) return safetensors_->Tensor(name);
  return MakeError(ErrorKind::kNotFound,
                   "'{}' holds no weights: model.safetensors or model.safetensors.index.json is "
                   "expected",
                   path_);
}

NameStyle ModelFiles::name_style() const {
  if (gguf_) return NameStyle::kGguf;
  return config_.ok() && config_->post_norms ? NameStyle::kHfPostNorms : NameStyle::kHf;
}

void ModelFiles::Evict(std::span<const std::byte> range) const {
  if (gguf_) gguf_->Evict(range);
  if (safetensors_) safetensors_->Evict(range);
}

}  // namespace quire::model
