// The OpenAI API's responses: a finished completion as the JSON body that clients read.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"
#include "engine/output.h"
#include "server/openai_request.h"
#include "text/tokenizer.h"

namespace quire::server {

// What every response of a request carries.
struct ResponseHeader {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
};

// The completions of all of the body's prompts, in order, as one body.
boost::json::object FormatResponse(const ResponseHeader& header, const ApiRequest& request,
                                   std::span<const engine::Completion> completions,
                                   const text::Tokenizer& tokenizer);

// {"error": {"message", "type", "param", "code"}}
boost::json::object FormatError(const Error& error);

// The HTTP status that fits an error.
int HttpStatus(ErrorKind kind);

std::string_view FinishReasonName(sched::FinishReason reason);

}  // namespace quire::server
