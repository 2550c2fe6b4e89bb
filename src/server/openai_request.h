// The OpenAI API's requests as plain data: bodies of /v1/completions and /v1/chat/completions, with
// the sampling fields that vLLM adds. Used by the batch command and by the server.
//
// Nothing in a body can abort the process: what is wrong comes back as an Error whose `param` names
// the field. Unknown fields are ignored, as OpenAI's clients expect.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "sched/request.h"
#include "server/tool_call_format.h"
#include "server/tool_choice.h"

namespace quire::server {

enum class Endpoint { kCompletions, kChatCompletions };

std::string_view UrlOf(Endpoint endpoint);
// nullopt: no endpoint of this API.
std::optional<Endpoint> EndpointFromUrl(std::string_view url);

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// What a completion repeats of its prompt.
struct Echo {
  std::string text;
  TokenId first_token = 0;  // of the prompt; the others come with their log probabilities
};

struct ApiRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;  // as the client wrote it; empty if absent

  std::vector<Prompt> prompts;             // completions: each becomes a request of its own
  boost::json::array messages;             // chat
  boost::json::object template_arguments;  // chat: tools, add_generation_prompt, ...
  std::string chat_template;               // chat: overrides the model's; empty: the model's

  sched::SamplingParams sampling;  // defaults filled in
  std::optional<uint64_t> seed;    // absent: the caller chooses
  bool limit_given = false;        // the client set max_tokens
  int n = 1;
  int best_of = 1;
  std::optional<sched::BeamSearchParams> beam_search;
  int priority = 0;
  std::string cache_salt;
  std::optional<kv::EvictionOptions> eviction;  // kv_policy; absent: the server's
  std::string request_id;

  bool continue_final_message = false;  // chat: go on with the last message

  ToolOptions tools;          // chat
  uint64_t call_id_seed = 0;  // whence the ids of calls come

  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool add_special_tokens = true;
  bool return_token_ids = false;
  std::optional<int> truncate_prompt_tokens;  // keep the last so many tokens of the prompt
  std::vector<std::string> bad_words;
  bool tells_prompt_logprobs = false;       // the client set prompt_logprobs
  std::vector<std::string> unknown_fields;  // ignored, as OpenAI's clients expect

  // What BuildRequests learns from the model:
  ToolCallFormat tool_format = ToolCallFormat::kHermes;  // how it writes calls
  std::optional<ConstrainedToolCall> forced_call;        // the answer is this, prefix and suffix
                                                         // not generated but given
  std::vector<std::vector<TokenId>> prompt_ids;          // [prompts] with return_token_ids
  std::vector<Echo> echoes;  // [prompts] with echo: what stands before the answer

  // With echo, log probabilities are those of prompt and answer.
  bool echoes_logprobs() const { return echo && sampling.logprobs.has_value(); }
  size_t prompt_count() const {
    return endpoint == Endpoint::kChatCompletions ? 1 : prompts.size();
  }
};

// Reads a body. `defaults` are the model's (generation_config.json) and hold where the body is
// silent.
Result<ApiRequest> ParseApiRequest(Endpoint endpoint, const boost::json::value& body,
                                   const sched::SamplingParams& defaults);

}  // namespace quire::server
