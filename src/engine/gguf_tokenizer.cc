#include "engine/gguf_tokenizer.h"

#include "text/gguf_tokenizer_fields.h"

namespace quire::engine {
namespace {

std::string StringOrEmpty(const model::GgufFile& file, std::string_view key) {
  return std::string(file.GetString(key).value_or(""));
}

std::vector<std::string> StringsOrEmpty(const model::GgufFile& file, std::string_view key) {
  const auto views = file.GetStringArray(key);
  if (!views) return {};
  return {views->begin(), views->end()};
}

}  // namespace

Result<text::TokenizerSpec> TokenizerSpecFromGguf(const model::GgufFile& file) {
  text::GgufTokenizerFields fields;
  fields.model = StringOrEmpty(file, "tokenizer.ggml.model");
  fields.tokens = StringsOrEmpty(file, "tokenizer.ggml.tokens");
  if (fields.model.empty() || fields.tokens.empty()) {
    return MakeError(ErrorKind::kNotFound,
                     "the file has no tokenizer (tokenizer.ggml.model and .tokens)");
  }
  fields.pre = StringOrEmpty(file, "tokenizer.ggml.pre");
  fields.scores = file.GetFloatArray("tokenizer.ggml.scores").value_or(std::vector<float>());
  if (const auto types = file.GetIntArray("tokenizer.ggml.token_type")) {
    fields.token_types.assign(types->begin(), types->end());
  }
  fields.merges = StringsOrEmpty(file, "tokenizer.ggml.merges");
  fields.bos_token_id = file.GetInt("tokenizer.ggml.bos_token_id");
  fields.eos_token_id = file.GetInt("tokenizer.ggml.eos_token_id");
  fields.eot_token_id = file.GetInt("tokenizer.ggml.eot_token_id");
  fields.eom_token_id = file.GetInt("tokenizer.ggml.eom_token_id");
  fields.unknown_token_id = file.GetInt("tokenizer.ggml.unknown_token_id");
  fields.padding_token_id = file.GetInt("tokenizer.ggml.padding_token_id");
  fields.add_bos_token = file.GetBool("tokenizer.ggml.add_bos_token");
  fields.add_eos_token = file.GetBool("tokenizer.ggml.add_eos_token");
  fields.add_space_prefix = file.GetBool("tokenizer.ggml.add_space_prefix");
  fields.remove_extra_whitespaces = file.GetBool("tokenizer.ggml.remove_extra_whitespaces");
  fields.architecture = StringOrEmpty(file, "general.architecture");
  fields.name = StringOrEmpty(file, "general.name");
  return text::SpecFromGgufFields(std::move(fields));
}

Result<text::Tokenizer> TokenizerFromGguf(const model::GgufFile& file) {
  QUIRE_ASSIGN_OR_RETURN(text::TokenizerSpec spec, TokenizerSpecFromGguf(file));
  return text::Tokenizer::Create(std::move(spec));
}

}  // namespace quire::engine
