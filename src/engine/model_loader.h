// LoadedModel: a model ready to run: configuration, weights, tokenizer, chat template and what its
// makers suggest for sampling.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "model/model_files.h"
#include "model/weights.h"
#include "sched/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire::engine {

class LoadedModel {
 public:
  // Opens `path` (GGUF file, first of a split, or Hugging Face directory) and packs its weights.
  // `progress` gets the share done, 0..1.
  static Result<LoadedModel> Load(const std::string& path, base::ThreadTeam& team,
                                  base::FunctionRef<void(double)> progress);

  const model::ModelFiles& files() const { return *files_; }
  const model::ModelConfig& config() const { return config_; }
  const model::Weights& weights() const { return weights_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::optional<text::ChatTemplate>& chat_template() const { return chat_template_; }
  const sched::SamplingParams& sampling_defaults() const { return sampling_defaults_; }
  const std::string& name() const { return name_; }  // the file's or directory's, without its path

 private:
  LoadedModel() = default;

  std::unique_ptr<model::ModelFiles> files_;
  model::ModelConfig config_;
  model::Weights weights_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> chat_template_;
  sched::SamplingParams sampling_defaults_;
  std::string name_;
};

// The tokenizer of a model or of a vocabulary-only file.
Result<text::Tokenizer> LoadTokenizer(const model::ModelFiles& files);

// A template with the tokenizer's bos and eos as the variables it may use.
Result<text::ChatTemplate> MakeChatTemplate(const std::string& source,
                                            const text::Tokenizer& tokenizer);

// The model's own chat template, with its bos and eos tokens; nullopt: it has none.
Result<std::optional<text::ChatTemplate>> LoadChatTemplate(const model::ModelFiles& files,
                                                           const text::Tokenizer& tokenizer);

}  // namespace quire::engine
