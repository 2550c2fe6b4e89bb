#include "engine/model_loader.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/gguf_tokenizer.h"
#include "text/tokenizer_files.h"

namespace quire::engine {
namespace {

std::string NameOf(const std::string& path) {
  std::filesystem::path cleaned = std::filesystem::path(path).lexically_normal();
  if (!cleaned.has_filename()) cleaned = cleaned.parent_path();
  return cleaned.extension() == ".gguf" ? cleaned.stem().string() : cleaned.filename().string();
}

std::string PieceOf(const text::Tokenizer& tokenizer, std::optional<TokenId> token) {
  return token ? std::string(tokenizer.TokenPiece(*token)) : std::string();
}

sched::SamplingParams DefaultsOf(const model::GenerationDefaults& makers) {
  sched::SamplingParams params;
  if (makers.do_sample == false) params.temperature = 0.0f;
  if (makers.temperature) params.temperature = static_cast<float>(*makers.temperature);
  if (makers.top_k) params.top_k = std::max(*makers.top_k, 0);
  if (makers.top_p) params.top_p = static_cast<float>(*makers.top_p);
  if (makers.min_p) params.min_p = static_cast<float>(*makers.min_p);
  if (makers.repetition_penalty) {
    params.repetition_penalty = static_cast<float>(*makers.repetition_penalty);
  }
  return params;
}

// Files do not always list what ends a text; the tokenizer's own end token always does.
void CompleteEndTokens(const text::Tokenizer& tokenizer, model::ModelConfig& config) {
  const std::optional<TokenId> eos = tokenizer.eos();
  if (eos &&
      std::find(config.eos_ids.begin(), config.eos_ids.end(), *eos) == config.eos_ids.end()) {
    config.eos_ids.push_back(*eos);
  }
}

}  // namespace

Result<LoadedModel> LoadedModel::Load(const std::string& path, base::ThreadTeam& team,
                                      base::FunctionRef<void(double)> progress) {
  LoadedModel model;
  model.name_ = NameOf(path);
  QUIRE_ASSIGN_OR_RETURN(model::ModelFiles files, model::ModelFiles::Open(path));
  model.files_ = std::make_unique<model::ModelFiles>(std::move(files));
  QUIRE_ASSIGN_OR_RETURN(model.config_, model.files_->config());
  QUIRE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, LoadTokenizer(*model.files_));
  model.tokenizer_ = std::make_unique<text::Tokenizer>(std::move(tokenizer));
  QUIRE_ASSIGN_OR_RETURN(model.chat_template_, LoadChatTemplate(*model.files_, *model.tokenizer_));
  CompleteEndTokens(*model.tokenizer_, model.config_);
  model.sampling_defaults_ = DefaultsOf(model.files_->generation_defaults());
  QUIRE_ASSIGN_OR_RETURN(model.weights_, model::LoadWeights(*model.files_, team, progress));
  return model;
}

Result<text::Tokenizer> LoadTokenizer(const model::ModelFiles& files) {
  if (files.gguf() != nullptr) return TokenizerFromGguf(*files.gguf());
  QUIRE_ASSIGN_OR_RETURN(text::TokenizerFiles found, text::LoadTokenizerFiles(files.path()));
  return text::Tokenizer::Create(std::move(found.spec));
}

Result<text::ChatTemplate> MakeChatTemplate(const std::string& source,
                                            const text::Tokenizer& tokenizer) {
  return text::ChatTemplate::Create(source, PieceOf(tokenizer, tokenizer.bos()),
                                    PieceOf(tokenizer, tokenizer.eos()));
}

Result<std::optional<text::ChatTemplate>> LoadChatTemplate(const model::ModelFiles& files,
                                                           const text::Tokenizer& tokenizer) {
  if (!files.chat_template()) return std::optional<text::ChatTemplate>();
  QUIRE_ASSIGN_OR_RETURN(text::ChatTemplate chat_template,
                         MakeChatTemplate(*files.chat_template(), tokenizer));
  return std::optional<text::ChatTemplate>(std::move(chat_template));
}

}  // namespace quire::engine
