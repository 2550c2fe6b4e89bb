// From a client's prompt to token ids: chat template, tokenizer, truncation, limits.
#pragma once

#include <limits>
#include <vector>

#include "base/result.h"
#include "engine/model_loader.h"
#include "sched/request.h"
#include "server/openai_request.h"

namespace quire::server {

// What a prompt is held against.
struct PromptLimits {
  int max_model_len = 0;
  uint64_t seed = 0;             // for requests that bring none
  kv::EvictionOptions eviction;  // likewise
  // Longest answer to who sets a limit and asks for the eviction policy streaming.
  int max_streaming_tokens = std::numeric_limits<int>::max();
  // In place of the model's; null: the model's.
  const text::ChatTemplate* chat_template = nullptr;
};

// Fills in how this model writes calls, and gives the token ids of the body's prompts (a chat has
// one). Held against the limits is only what would take long to encode.
Result<std::vector<std::vector<TokenId>>> EncodePrompts(ApiRequest& api,
                                                        const engine::LoadedModel& model,
                                                        const PromptLimits& limits);

// Fills in what the body leaves to the model (how calls are written, what is echoed), and makes one
// scheduler request per prompt of the body (a chat has one). max_tokens is cut to what the
// context has room for. Errors name the field, the limit and the counts.
Result<std::vector<sched::Request>> BuildRequests(ApiRequest& api, const engine::LoadedModel& model,
                                                  const PromptLimits& limits);

}  // namespace quire::server
