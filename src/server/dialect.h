// The APIs in which clients ask for text. Each turns a body into the one form that is served, and
// has its own words for answers and errors. Pure functions; any thread may call them.
#pragma once

#include <memory>
#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"
#include "server/answer_format.h"
#include "server/http_error.h"
#include "server/openai_request.h"

namespace quire::server {

enum class Dialect {
  kCompletions,      // OpenAI's /v1/completions
  kChatCompletions,  // OpenAI's /v1/chat/completions
  kResponses,        // OpenAI's /v1/responses
  kMessages,         // Anthropic's /v1/messages
};
inline constexpr Dialect kAllDialects[] = {Dialect::kCompletions, Dialect::kChatCompletions,
                                           Dialect::kResponses, Dialect::kMessages};

std::string_view UrlOf(Dialect dialect);

// What ids of its answers begin with.
std::string_view IdPrefix(Dialect dialect);

struct DialectRequest {
  ApiRequest api;
  boost::json::object settings;  // what an answer of /v1/responses repeats
};

// `defaults` as for ParseApiRequest.
Result<DialectRequest> ParseRequest(Dialect dialect, const boost::json::value& body,
                                    const sched::SamplingParams& defaults);

// `request` and `tokenizer` must outlive the format.
std::unique_ptr<AnswerFormat> MakeFormat(Dialect dialect, ResponseHeader header,
                                         const DialectRequest& request,
                                         const text::Tokenizer& tokenizer);

HttpResponse ErrorResponse(Dialect dialect, HttpError error);

}  // namespace quire::server
