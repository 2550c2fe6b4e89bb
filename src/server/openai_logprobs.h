// Log probabilities in the shapes of the OpenAI API.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <boost/json.hpp>

#include "engine/output.h"
#include "text/tokenizer.h"

namespace quire::server {

// Completions: parallel lists. `text_offset` is the character where the first token's text begins,
// and is moved to where the last one's ends.
boost::json::object CompletionLogprobs(std::span<const engine::TokenLogprobs> entries,
                                       const text::Tokenizer& tokenizer, int64_t& text_offset);

// The same lists for an echoed prompt: its first token, which has no log probability, and the
// entries of the others. `text_characters`: of the echoed text.
boost::json::object EchoLogprobs(TokenId first_token,
                                 std::span<const std::optional<engine::TokenLogprobs>> entries,
                                 const text::Tokenizer& tokenizer, int64_t text_characters);

// Adds the lists of `more` to those of `logprobs`.
void AppendLogprobs(boost::json::object& logprobs, const boost::json::object& more);

// Chat: {"content": a list of objects}.
boost::json::object ChatLogprobs(std::span<const engine::TokenLogprobs> entries,
                                 const text::Tokenizer& tokenizer);

// vLLM's prompt_logprobs: of every prompt token an object by token id; null for the first.
boost::json::array PromptLogprobs(std::span<const std::optional<engine::TokenLogprobs>> entries);

}  // namespace quire::server
