// Answers in the shape of Anthropic's /v1/messages: whole, or as a stream of events.
//
// Fed by the deltas of a ToolCallParser, or by content alone where no tools are offered. Used by
// whoever answers the request; one thread at a time. Source: the public reference of Anthropic's
// Messages API and its streaming, version 2023-06-01.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "engine/output.h"
#include "server/tool_call_parser.h"

namespace quire::server {

struct AnthropicHeader {
  std::string id;  // of the message
  std::string model;
};

// How an answer ended.
struct AnthropicEnd {
  sched::FinishReason finish = sched::FinishReason::kStop;
  engine::StopReason stop_reason = {};
  engine::Usage usage = {};
};

// The whole message. A call whose arguments are no JSON object (cut by a limit) has the input {}.
boost::json::object FormatAnthropicMessage(const AnthropicHeader& header,
                                           std::span<const ToolDelta> deltas,
                                           const AnthropicEnd& end);

// {"type": "error", "error": {"type", "message"}}, the type as it belongs to the HTTP status.
boost::json::object FormatAnthropicError(int status, std::string_view message);

// One server-sent event: "event: NAME\ndata: DATA\n\n".
struct AnthropicEvent {
  std::string name;  // also data["type"]
  boost::json::object data;
};

// The events of one message, in order: Start once, Add as deltas come, Finish once.
class AnthropicStream {
 public:
  explicit AnthropicStream(AnthropicHeader header) : header_(std::move(header)) {}

  // `usage`: what is known of the prompt when the stream begins.
  std::vector<AnthropicEvent> Start(const engine::Usage& usage);
  std::vector<AnthropicEvent> Add(std::span<const ToolDelta> deltas);
  std::vector<AnthropicEvent> Finish(const AnthropicEnd& end);

  // In place of Finish where the answer fails midway.
  static AnthropicEvent Failure(int status, std::string_view message);

 private:
  enum class Block { kNone, kText, kToolUse };

  void Open(Block block, boost::json::object content, std::vector<AnthropicEvent>& events);
  void Close(std::vector<AnthropicEvent>& events);
  AnthropicEvent Delta(boost::json::object delta) const;

  AnthropicHeader header_;
  Block block_ = Block::kNone;  // the one that is open
  int blocks_ = 0;              // begun so far
  bool has_calls_ = false;
};

}  // namespace quire::server
