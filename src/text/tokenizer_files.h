// A model directory's tokenizer, of whatever files it has: tokenizer.json, else tokenizer.model,
// completed by tokenizer_config.json, special_tokens_map.json and added_tokens.json.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

struct TokenizerFiles {
  TokenizerSpec spec;
  std::vector<ChatTemplateSource> chat_templates;  // also of chat_template.jinja
};

// `path`: the directory, or one of tokenizer.json and tokenizer.model in it.
Result<TokenizerFiles> LoadTokenizerFiles(const std::string& path);

}  // namespace quire::text
