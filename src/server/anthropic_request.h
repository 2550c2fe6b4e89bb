// Bodies of Anthropic's /v1/messages as bodies of /v1/chat/completions, so that one path serves
// both.
//
// A pure function; any thread may call it. Nothing in a body can abort the process: errors are the
// client's (kUsage), their `param` names the place in the body that the client sent. Source: the
// public reference of Anthropic's Messages API, version 2023-06-01.
#pragma once

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::server {

// model, max_tokens, system, messages (text, tool_use and tool_result blocks; thinking blocks are
// left out), tools, tool_choice, stop_sequences, temperature, top_p, top_k, stream,
// metadata.user_id. Values that the chat API checks itself (numbers, the messages' limits) pass as
// they are. Blocks with images or documents, and tools that run on the server, are errors. Unknown
// fields are left out.
Result<boost::json::object> ChatBodyFromAnthropic(const boost::json::object& body);

}  // namespace quire::server
