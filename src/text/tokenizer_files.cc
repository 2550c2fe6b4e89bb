#include "text/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "text/read_file.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_json.h"

namespace quire::text {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The configuration files in `directory` together; tokenizer_config.json has the last word.
Result<TokenizerConfig> LoadConfig(const fs::path& directory) {
  TokenizerConfig config;
  if (const fs::path path = directory / "tokenizer_config.json"; Exists(path)) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
    QUIRE_ASSIGN_OR_RETURN(config, ParseTokenizerConfig(text));
  }
  if (const fs::path path = directory / "special_tokens_map.json"; Exists(path)) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
    QUIRE_ASSIGN_OR_RETURN(const TokenizerConfig map, ParseTokenizerConfig(text));
    if (!config.bos_token) config.bos_token = map.bos_token;
    if (!config.eos_token) config.eos_token = map.eos_token;
    if (!config.unk_token) config.unk_token = map.unk_token;
    if (!config.pad_token) config.pad_token = map.pad_token;
    config.special_tokens.insert(config.special_tokens.end(), map.special_tokens.begin(),
                                 map.special_tokens.end());
  }
  if (const fs::path path = directory / "added_tokens.json";
      Exists(path) && config.added_tokens.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
    QUIRE_ASSIGN_OR_RETURN(config.added_tokens, ParseAddedTokens(text));
    for (AddedToken& token : config.added_tokens) {
      token.special = std::find(config.special_tokens.begin(), config.special_tokens.end(),
                                token.content) != config.special_tokens.end();
    }
  }
  // Newer checkpoints keep the template in a file of its own.
  if (const fs::path path = directory / "chat_template.jinja"; Exists(path)) {
    QUIRE_ASSIGN_OR_RETURN(std::string source, ReadFile(path.string()));
    config.chat_templates.insert(config.chat_templates.begin(), {"default", std::move(source)});
  }
  return config;
}

}  // namespace

Result<TokenizerFiles> LoadTokenizerFiles(const std::string& given) {
  fs::path path = given;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const bool has_json = Exists(path / "tokenizer.json");
    if (!has_json && !Exists(path / "tokenizer.model")) {
      return MakeError(ErrorKind::kNotFound,
                       "{} has no tokenizer: neither tokenizer.json nor tokenizer.model", given);
    }
    path /= has_json ? "tokenizer.json" : "tokenizer.model";
  }
  TokenizerFiles files;
  QUIRE_ASSIGN_OR_RETURN(TokenizerConfig config, LoadConfig(path.parent_path()));
  if (path.extension() == ".json") {
    QUIRE_ASSIGN_OR_RETURN(files.spec, LoadTokenizerJson(path.string()));
  } else {
    QUIRE_ASSIGN_OR_RETURN(files.spec, LoadSentencePieceModel(path.string()));
    QUIRE_RETURN_IF_ERROR(ApplyToSentencePiece(config, files.spec));
  }
  ApplySpecialTokens(config, files.spec);
  files.chat_templates = std::move(config.chat_templates);
  return files;
}

}  // namespace quire::text
