#include "server/anthropic_response.h"

#include <utility>

namespace quire::server {
namespace json = boost::json;
namespace {

AnthropicEvent MakeEvent(std::string_view name, json::object fields) {
  json::object data{{"type", name}};
  for (json::key_value_pair& field : fields) data.emplace(field.key(), std::move(field.value()));
  return {std::string(name), std::move(data)};
}

// Anthropic counts the tokens that came from a cache apart.
json::object UsageJson(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

enum class Calls { kNone, kSome };

std::string_view StopReasonName(const AnthropicEnd& end, Calls calls) {
  if (end.finish == sched::FinishReason::kLength) return "max_tokens";
  if (std::holds_alternative<std::string>(end.stop_reason)) return "stop_sequence";
  return calls == Calls::kSome ? "tool_use" : "end_turn";
}

json::value StopSequence(const AnthropicEnd& end) {
  const auto* text = std::get_if<std::string>(&end.stop_reason);
  return text == nullptr ? json::value(nullptr) : json::value(json::string(*text));
}

// The text of arguments as the object it should be.
json::object Input(std::string_view arguments) {
  json::error_code error;
  json::value input = json::parse(arguments, error);
  return !error && input.is_object() ? std::move(input.get_object()) : json::object();
}

json::object ToolUse(const CallStartDelta& start) {
  return {{"type", "tool_use"}, {"id", start.id}, {"name", start.name}, {"input", json::object()}};
}

json::object MessageJson(const AnthropicHeader& header, json::array content) {
  return {{"id", header.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", header.model},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

}  // namespace

json::object FormatAnthropicMessage(const AnthropicHeader& header,
                                    std::span<const ToolDelta> deltas, const AnthropicEnd& end) {
  json::array content;
  std::string text;       // of the text block under way
  std::string arguments;  // of the call under way
  const auto close = [&] {
    if (!text.empty()) {
      content.push_back(json::object{{"type", "text"}, {"text", std::exchange(text, {})}});
    } else if (!arguments.empty()) {
      content.back().as_object()["input"] = Input(std::exchange(arguments, {}));
    }
  };
  Calls calls = Calls::kNone;
  for (const ToolDelta& delta : deltas) {
    if (const auto* words = std::get_if<ContentDelta>(&delta)) {
      if (text.empty()) close();
      text += words->text;
    } else if (const auto* start = std::get_if<CallStartDelta>(&delta)) {
      close();
      content.push_back(ToolUse(*start));
      calls = Calls::kSome;
    } else {
      arguments += std::get<ArgumentsDelta>(delta).text;
    }
  }
  close();
  json::object message = MessageJson(header, std::move(content));
  message["stop_reason"] = StopReasonName(end, calls);
  message["stop_sequence"] = StopSequence(end);
  message["usage"] = UsageJson(end.usage);
  return message;
}

json::object FormatAnthropicError(int status, std::string_view message) {
  const std::pair<int, std::string_view> types[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
  };
  std::string_view type = status >= 500 ? "api_error" : "invalid_request_error";
  for (const auto& [code, name] : types) {
    if (code == status) type = name;
  }
  return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}

std::vector<AnthropicEvent> AnthropicStream::Start(const engine::Usage& usage) {
  json::object message = MessageJson(header_, {});
  message["usage"] = UsageJson(usage);
  std::vector<AnthropicEvent> events;
  events.push_back(MakeEvent("message_start", {{"message", std::move(message)}}));
  return events;
}

std::vector<AnthropicEvent> AnthropicStream::Add(std::span<const ToolDelta> deltas) {
  std::vector<AnthropicEvent> events;
  for (const ToolDelta& delta : deltas) {
    if (const auto* words = std::get_if<ContentDelta>(&delta)) {
      if (words->text.empty()) continue;
      if (block_ != Block::kText) Open(Block::kText, {{"type", "text"}, {"text", ""}}, events);
      events.push_back(Delta({{"type", "text_delta"}, {"text", words->text}}));
    } else if (const auto* start = std::get_if<CallStartDelta>(&delta)) {
      Open(Block::kToolUse, ToolUse(*start), events);
      has_calls_ = true;
    } else {
      const std::string& text = std::get<ArgumentsDelta>(delta).text;
      events.push_back(Delta({{"type", "input_json_delta"}, {"partial_json", text}}));
    }
  }
  return events;
}

std::vector<AnthropicEvent> AnthropicStream::Finish(const AnthropicEnd& end) {
  std::vector<AnthropicEvent> events;
  Close(events);
  const Calls calls = has_calls_ ? Calls::kSome : Calls::kNone;
  events.push_back(MakeEvent("message_delta", {{"delta",
                                                {{"stop_reason", StopReasonName(end, calls)},
                                                 {"stop_sequence", StopSequence(end)}}},
                                               {"usage", UsageJson(end.usage)}}));
  events.push_back(MakeEvent("message_stop", {}));
  return events;
}

AnthropicEvent AnthropicStream::Failure(int status, std::string_view message) {
  return {"error", FormatAnthropicError(status, message)};
}

void AnthropicStream::Open(Block block, json::object content, std::vector<AnthropicEvent>& events) {
  Close(events);
  block_ = block;
  events.push_back(MakeEvent("content_block_start",
                             {{"index", blocks_}, {"content_block", std::move(content)}}));
  ++blocks_;
}

void AnthropicStream::Close(std::vector<AnthropicEvent>& events) {
  if (block_ != Block::kNone) {
    events.push_back(MakeEvent("content_block_stop", {{"index", blocks_ - 1}}));
  }
  block_ = Block::kNone;
}

AnthropicEvent AnthropicStream::Delta(json::object delta) const {
  return MakeEvent("content_block_delta", {{"index", blocks_ - 1}, {"delta", std::move(delta)}});
}

}  // namespace quire::server
