#include "server/anthropic_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::server {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;

const AnthropicHeader kHeader{"msg_1", "m"};
const engine::Usage kUsage{.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 7};

std::vector<ToolDelta> DeltasWithCalls() {
  return {ContentDelta{"Let me"},      ContentDelta{" see."},     CallStartDelta{0, "call_a", "f"},
          ArgumentsDelta{0, "{\"a\""}, ArgumentsDelta{0, ": 1}"}, CallStartDelta{1, "call_b", "g"},
          ArgumentsDelta{1, "{}"},     ContentDelta{"Done"}};
}

TEST(AnthropicResponse, WholeMessageHoldsItsBlocksInOrder) {
  const json::value message = FormatAnthropicMessage(kHeader, DeltasWithCalls(), {.usage = kUsage});
  EXPECT_EQ(message, json::parse(R"({"id": "msg_1", "type": "message", "role": "assistant",
      "model": "m", "content": [{"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_a", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_b", "name": "g", "input": {}},
        {"type": "text", "text": "Done"}],
      "stop_reason": "tool_use", "stop_sequence": null,
      "usage": {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
                "output_tokens": 7}})"));
}

TEST(AnthropicResponse, ReasonToStopIsNamedAsAnthropicDoes) {
  using sched::FinishReason;
  const std::vector<ToolDelta> text = {ContentDelta{"a"}};
  const auto reason = [&](const AnthropicEnd& end) {
    const json::object message = FormatAnthropicMessage(kHeader, text, end);
    return json::serialize(json::array{message.at("stop_reason"), message.at("stop_sequence")});
  };
  EXPECT_EQ(reason({.finish = FinishReason::kStop}), R"(["end_turn",null])");
  EXPECT_EQ(reason({.finish = FinishReason::kStop, .stop_reason = TokenId{2}}),
            R"(["end_turn",null])");
  EXPECT_EQ(reason({.finish = FinishReason::kLength}), R"(["max_tokens",null])");
  EXPECT_EQ(reason({.finish = FinishReason::kStop, .stop_reason = std::string("END")}),
            R"(["stop_sequence","END"])");
}

TEST(AnthropicResponse, CutArgumentsGiveAnEmptyInput) {
  const std::vector<ToolDelta> deltas = {CallStartDelta{0, "c", "f"},
                                         ArgumentsDelta{0, "{\"a\": "}};
  const json::object message =
      FormatAnthropicMessage(kHeader, deltas, {.finish = sched::FinishReason::kLength});
  EXPECT_EQ(message.at("content").at(0).at("input"), json::object());
  EXPECT_EQ(message.at("stop_reason"), "max_tokens");
}

TEST(AnthropicResponse, EmptyAnswerHasNoBlocks) {
  EXPECT_EQ(FormatAnthropicMessage(kHeader, {}, {}).at("content"), json::array());
}

// Each event as one line; the name must be the data's type.
std::vector<std::string> Lines(const std::vector<AnthropicEvent>& events) {
  std::vector<std::string> lines;
  for (const AnthropicEvent& event : events) {
    EXPECT_EQ(json::value(event.name), event.data.at("type"));
    lines.push_back(json::serialize(event.data));
  }
  return lines;
}

TEST(AnthropicResponse, StreamOpensAndClosesEveryBlock) {
  AnthropicStream stream(kHeader);
  EXPECT_THAT(
      Lines(stream.Start({.prompt_tokens = 10, .cached_tokens = 4})),
      ElementsAre(
          R"({"type":"message_start","message":{"id":"msg_1","type":"message",)"
          R"("role":"assistant","model":"m","content":[],"stop_reason":null,)"
          R"("stop_sequence":null,"usage":{"input_tokens":6,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":4,"output_tokens":0}}})"));
  const std::vector<ToolDelta> deltas = DeltasWithCalls();
  const std::span<const ToolDelta> all = deltas;
  EXPECT_THAT(Lines(stream.Add(all.subspan(0, 2))),
              ElementsAre(R"({"type":"content_block_start","index":0,)"
                          R"("content_block":{"type":"text","text":""}})",
                          R"({"type":"content_block_delta","index":0,)"
                          R"("delta":{"type":"text_delta","text":"Let me"}})",
                          R"({"type":"content_block_delta","index":0,)"
                          R"("delta":{"type":"text_delta","text":" see."}})"));
  EXPECT_THAT(Lines(stream.Add(all.subspan(2, 3))),
              ElementsAre(R"({"type":"content_block_stop","index":0})",
                          R"({"type":"content_block_start","index":1,"content_block":)"
                          R"({"type":"tool_use","id":"call_a","name":"f","input":{}}})",
                          R"({"type":"content_block_delta","index":1,)"
                          R"("delta":{"type":"input_json_delta","partial_json":"{\"a\""}})",
                          R"({"type":"content_block_delta","index":1,)"
                          R"("delta":{"type":"input_json_delta","partial_json":": 1}"}})"));
  const std::vector<std::string> rest = Lines(stream.Add(all.subspan(5)));
  ASSERT_EQ(rest.size(), 6u);
  EXPECT_EQ(rest[0], R"({"type":"content_block_stop","index":1})");
  EXPECT_EQ(rest[3], R"({"type":"content_block_stop","index":2})");
  EXPECT_THAT(Lines(stream.Finish({.usage = kUsage})),
              ElementsAre(R"({"type":"content_block_stop","index":3})",
                          R"({"type":"message_delta","delta":{"stop_reason":"tool_use",)"
                          R"("stop_sequence":null},"usage":{"input_tokens":6,)"
                          R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
                          R"("output_tokens":7}})",
                          R"({"type":"message_stop"})"));
}

TEST(AnthropicResponse, StreamWithoutContentHasNoBlocks) {
  AnthropicStream stream(kHeader);
  const std::vector<ToolDelta> nothing = {ContentDelta{""}};
  EXPECT_THAT(stream.Add(nothing), ::testing::IsEmpty());
  EXPECT_EQ(stream.Finish({}).front().name, "message_delta");
}

TEST(AnthropicResponse, FailureIsAnEvent) {
  EXPECT_THAT(Lines({AnthropicStream::Failure(500, "lost")}),
              ElementsAre(R"({"type":"error","error":{"type":"api_error","message":"lost"}})"));
}

TEST(AnthropicResponse, ErrorTypesFollowTheStatus) {
  const std::pair<int, const char*> types[] = {{400, "invalid_request_error"},
                                               {401, "authentication_error"},
                                               {404, "not_found_error"},
                                               {413, "request_too_large"},
                                               {422, "invalid_request_error"},
                                               {429, "rate_limit_error"},
                                               {500, "api_error"},
                                               {503, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    EXPECT_EQ(FormatAnthropicError(status, "m").at("error").at("type"), type);
  }
}

}  // namespace
}  // namespace quire::server
