// A client's chat messages, checked and brought into the one form that chat templates expect.
//
// Pure functions; any thread may call them. Errors are those of the client (kUsage) and their
// `param` names the place: messages[2].content[0].
#pragma once

#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::server {

// What a template wants otherwise than most; read from its source.
struct MessageShape {
  bool null_content = false;    // a message that only calls tools has null content, not ""
  bool text_arguments = false;  // arguments of calls stay JSON text, and are not made objects
  bool short_ids = false;       // ids of calls have nine letters and digits (Mistral)
};

MessageShape DetectMessageShape(std::string_view chat_template);

struct MessageLimits {
  size_t messages_max = 16'384;
  size_t bytes_max = 32 << 20;  // contents and arguments together; what a template may write
};

// Every message becomes an object with
// - role: system, user, assistant or tool. `developer` becomes system, `function` tool.
// - content: a string. Text parts ("text", "input_text") are joined by newlines; other parts are an
//   error. null or missing only for an assistant: nothing was said.
// - tool_calls, of an assistant, not empty: {"id", "type": "function", "function": {"name",
//   "arguments"}}, the arguments as an object if they are the text of one.
// - tool_call_id and name where given, as strings.
// Other fields (reasoning_content and the like) pass through; null ones are left out.
Result<boost::json::array> NormalizeMessages(const boost::json::array& messages,
                                             const MessageShape& shape = {},
                                             const MessageLimits& limits = {});

}  // namespace quire::server
