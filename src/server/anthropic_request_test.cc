#include "server/anthropic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/chat_messages.h"
#include "server/tool_choice.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

Result<json::object> Translate(std::string_view text) {
  return ChatBodyFromAnthropic(json::parse(text).as_object());
}

// The body with `fields` besides the required ones.
json::object With(std::string_view fields) {
  const std::string text = fmt::format(
      R"({{"model": "m", "max_tokens": 9, "messages": [{{"role": "user", "content": "Hi"}}], {}}})",
      fields);
  return *Translate(text);
}

TEST(AnthropicRequest, FieldsTakeTheNamesOfTheChatApi) {
  const json::value chat = With(
      R"("system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "brief."}],
         "stop_sequences": ["\n", "END"], "temperature": 0.5, "top_p": 0.9, "top_k": 40,
         "stream": true, "metadata": {"user_id": "u"}, "service_tier": "auto", "tools": [])");
  EXPECT_EQ(chat, json::parse(R"({"model": "m", "max_tokens": 9,
      "messages": [{"role": "system", "content": "Be\nbrief."}, {"role": "user", "content": "Hi"}],
      "stop": ["\n", "END"], "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stream": true,
      "user": "u", "tools": []})"));
  EXPECT_EQ(With(R"("system": "Be brief.")").at("messages").at(0).at("content"), "Be brief.");
}

TEST(AnthropicRequest, ConversationWithToolsBecomesMessagesThatTemplatesKnow) {
  const Result<json::object> chat = Translate(R"({"model": "m", "max_tokens": 9, "messages": [
      {"role": "user", "content": [{"type": "text", "text": "Weather in"},
                                   {"type": "text", "text": "Paris?"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "t2", "name": "now", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "21"},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
         "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "clock"}]},
        {"type": "text", "text": "And?"}]},
      {"role": "assistant", "content": "It is"}]})");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->at("messages"), json::parse(R"([
      {"role": "user", "content": "Weather in\nParis?"},
      {"role": "assistant", "content": "Let me see.", "tool_calls": [
        {"id": "t1", "type": "function",
         "function": {"name": "get_weather", "arguments": {"city": "Paris"}}},
        {"id": "t2", "type": "function", "function": {"name": "now", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "t1", "content": "21"},
      {"role": "tool", "tool_call_id": "t2", "content": "no\nclock"},
      {"role": "user", "content": "And?"},
      {"role": "assistant", "content": "It is"}])"));
  EXPECT_TRUE(NormalizeMessages(chat->at("messages").as_array()).ok());
}

TEST(AnthropicRequest, ToolsAndChoicesBecomeThoseOfTheChatApi) {
  const std::string tools =
      R"("tools": [{"name": "f", "description": "does f", "input_schema": {"type": "object",
                    "properties": {"a": {"type": "integer"}}}},
                   {"type": "custom", "name": "g", "input_schema": {"type": "object"}}])";
  using Mode = ToolChoice::Mode;
  const std::pair<const char*, Mode> choices[] = {
      {R"({"type": "auto"})", Mode::kAuto},
      {R"({"type": "any"})", Mode::kRequired},
      {R"({"type": "none"})", Mode::kNone},
      {R"({"type": "tool", "name": "g", "disable_parallel_tool_use": true})", Mode::kNamed},
  };
  for (const auto& [choice, mode] : choices) {
    const json::object chat = With(fmt::format(R"({}, "tool_choice": {})", tools, choice));
    const Result<ToolOptions> options = ParseToolOptions(chat);
    ASSERT_TRUE(options.ok()) << options.error().message;
    EXPECT_EQ(options->choice.mode, mode);
    EXPECT_EQ(options->parallel, mode != Mode::kNamed);
    EXPECT_EQ(options->choice.name, mode == Mode::kNamed ? "g" : "");
    ASSERT_EQ(options->tools.size(), 2u);
    EXPECT_EQ(options->tools[0].description, "does f");
    EXPECT_EQ(options->tools[0].parameters.at("properties").at("a").at("type"), "integer");
  }
}

TEST(AnthropicRequest, ErrorsNameThePlaceInTheClientsOwnBody) {
  const std::string start = R"({"model": "m", "max_tokens": 9, )";
  const std::string hi = R"("messages": [{"role": "user", "content": "Hi"}], )";
  const std::pair<std::string, const char*> cases[] = {
      {R"({"max_tokens": 1})", "model: 'model' must be a string"},
      {R"({"model": "m", "messages": []})", "max_tokens: 'max_tokens' is missing"},
      {start + R"("messages": []})", "messages: "},
      {start + R"("messages": [1]})", "messages[0]: "},
      {start + R"("messages": [{"role": "system", "content": "a"}]})",
       "messages[0].role: 'messages[0].role' must be user or assistant, not 'system'"},
      {start + R"("messages": [{"role": "user"}]})", "messages[0].content: "},
      {start + R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                            {"type": "image"}]}]})",
       "messages[0].content[1]: 'messages[0].content[1]' has the type 'image'"},
      {start + R"("messages": [{"role": "user", "content": ["a"]}]})", "messages[0].content[0]: "},
      {start + R"("messages": [{"role": "user", "content": [{"text": "a"}]}]})",
       "messages[0].content[0].type: "},
      {start + R"("messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text: "},
      {start + R"("messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})",
       "messages[0].content[0].tool_use_id: "},
      {start + R"("messages": [{"role": "user", "content": [{"type": "tool_result",
                   "tool_use_id": "t", "content": [{"type": "image"}]}]}]})",
       "messages[0].content[0].content[0]: "},
      {start + R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t",
                   "name": "f", "input": "{}"}]}]})",
       "messages[0].content[0].input: "},
      {start + R"("messages": [{"role": "assistant", "content": [{"type": "document"}]}]})",
       "messages[0].content[0]: "},
      {start + hi + R"("system": 1})", "system: "},
      {start + hi + R"("system": [{"type": "image"}]})", "system[0]: "},
      {start + hi + R"("stop_sequences": "a"})", "stop_sequences: "},
      {start + hi + R"("tools": {}})", "tools: "},
      {start + hi + R"("tools": [{"name": "f"}]})", "tools[0].input_schema: "},
      {start + hi + R"("tools": [{"type": "web_search_20250305", "name": "web_search"}]})",
       "tools[0].type: "},
      {start + hi + R"("tool_choice": "auto"})", "tool_choice: "},
      {start + hi + R"("tool_choice": {"type": "all"}})", "tool_choice.type: "},
      {start + hi + R"("tool_choice": {"type": "tool"}})", "tool_choice.name: "},
      {start + hi + R"("tool_choice": {"type": "any", "disable_parallel_tool_use": 1}})",
       "tool_choice.disable_parallel_tool_use: "},
  };
  for (const auto& [text, error] : cases) {
    const Result<json::object> chat = Translate(text);
    ASSERT_FALSE(chat.ok()) << text;
    EXPECT_EQ(chat.error().kind, ErrorKind::kUsage);
    EXPECT_THAT(chat.error().param + ": " + chat.error().message, HasSubstr(error)) << text;
  }
}

}  // namespace
}  // namespace quire::server
