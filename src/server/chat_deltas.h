// ChatDeltas: one choice of a chat's answer as deltas: content, starts of calls, their arguments.
//
// Reads the text that was generated together with what a forced call leaves out of it (the prefix
// stood in the prompt, the suffix was not waited for). Where no tool may be called all is content.
// One thread at a time; the request must outlive it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/openai_request.h"
#include "server/tool_call_parser.h"

namespace quire::server {

class ChatDeltas {
 public:
  ChatDeltas(const ApiRequest& request, int choice);

  // More of the text; the last of it where `finish` is given.
  std::vector<ToolDelta> Add(std::string_view text, std::optional<sched::FinishReason> finish);

  // Whether text is read for calls, so that it may come later than its tokens.
  bool reads_calls() const { return parser_.has_value(); }
  int calls() const { return parser_ ? parser_->calls() : 0; }

 private:
  const ApiRequest& request_;
  std::optional<ToolCallParser> parser_;
  bool begun_ = false;
};

}  // namespace quire::server
