// Bodies of OpenAI's /v1/responses as bodies of /v1/chat/completions, so that one path serves both.
//
// A pure function; any thread may call it. Nothing in a body can abort the process: errors are the
// client's (kUsage), their `param` names the place in the body that the client sent. Source: the
// public reference of OpenAI's Responses API.
#pragma once

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::server {

struct ResponsesRequest {
  boost::json::object chat;      // the body for /v1/chat/completions
  boost::json::object settings;  // what the answer repeats: instructions, tools, temperature, ...
};

// model, input (text, messages with text parts, function_call and function_call_output items),
// instructions, max_output_tokens, temperature, top_p, stream, tools (functions), tool_choice,
// parallel_tool_calls, text.format, metadata, user. Reasoning items are left out. Nothing is stored
// here: `previous_response_id`, `conversation` and `background` are errors, as are tools that run
// on the server and inputs with images or files. Unknown fields are left out.
Result<ResponsesRequest> ChatBodyFromResponses(const boost::json::object& body);

}  // namespace quire::server
