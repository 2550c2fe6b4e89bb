// The small files beside a Hugging Face tokenizer: tokenizer_config.json, special_tokens_map.json
// and added_tokens.json; what they add to a TokenizerSpec, and the chat templates.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

struct ChatTemplateSource {
  std::string name;    // "default" unless the file lists several
  std::string source;  // Jinja
};

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token, unk_token, pad_token;
  std::optional<bool> add_bos_token, add_eos_token;
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;  // false: only the start of a text gets a dummy prefix
  std::vector<AddedToken> added_tokens;
  std::vector<std::string> special_tokens;  // additional_special_tokens
  std::vector<ChatTemplateSource> chat_templates;
};

// tokenizer_config.json, or special_tokens_map.json, which has a part of its members.
Result<TokenizerConfig> ParseTokenizerConfig(std::string_view json);

// added_tokens.json: {"text": id}.
Result<std::vector<AddedToken>> ParseAddedTokens(std::string_view json);

// Sets the special tokens that `config` names; unknown names are ignored.
void ApplySpecialTokens(const TokenizerConfig& config, TokenizerSpec& spec);

// For a model that has no tokenizer.json: tokens the model file does not have, and how it is used.
Status ApplyToSentencePiece(const TokenizerConfig& config, TokenizerSpec& spec);

}  // namespace quire::text
