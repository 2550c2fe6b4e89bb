// A tokenizer as GGUF metadata describes it (keys tokenizer.ggml.*), and the TokenizerSpec it
// means.
//
// Plain data: whoever reads the file fills it in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

struct GgufTokenizerFields {
  std::string model;                    // tokenizer.ggml.model: "llama" or "gpt2"
  std::string pre;                      // .pre; empty where absent
  std::vector<std::string> tokens;      // .tokens
  std::vector<float> scores;            // .scores, as many as tokens, or none
  std::vector<int32_t> token_types;     // .token_type, as many as tokens, or none
  std::vector<std::string> merges;      // .merges: "left right"
  std::optional<int64_t> bos_token_id;  // ids outside the vocabulary count as absent
  std::optional<int64_t> eos_token_id;
  std::optional<int64_t> eot_token_id;
  std::optional<int64_t> eom_token_id;
  std::optional<int64_t> unknown_token_id;
  std::optional<int64_t> padding_token_id;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
  std::string architecture;  // general.architecture and general.name: Phi-3's added
  std::string name;          // tokens take white space with them, which no key says
};

Result<TokenizerSpec> SpecFromGgufFields(GgufTokenizerFields fields);

}  // namespace quire::text
