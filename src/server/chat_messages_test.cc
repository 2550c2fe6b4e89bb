#include "server/chat_messages.h"

#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/shared_data.h"
#include "text/chat_template.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

json::array Messages(std::string_view text) {
  return json::parse(text).as_array();
}

// The messages as JSON, or "PARAM: MESSAGE" of the error.
std::string Normalized(std::string_view text, const MessageShape& shape = {},
                       const MessageLimits& limits = {}) {
  const Result<json::array> result = NormalizeMessages(Messages(text), shape, limits);
  if (!result.ok()) return result.error().param + ": " + result.error().message;
  return json::serialize(*result);
}

std::string Same(std::string_view text) {
  return json::serialize(json::parse(text));
}

TEST(ChatMessages, RolesAreThoseThatTemplatesKnow) {
  EXPECT_EQ(Normalized(R"([{"role": "developer", "content": "a"}, {"role": "user", "content": "b"},
                           {"role": "assistant", "content": ""},
                           {"role": "function", "name": "f", "content": "c"},
                           {"role": "tool", "tool_call_id": "x", "content": "d"}])"),
            Same(R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"},
                     {"role": "assistant", "content": ""},
                     {"role": "tool", "content": "c", "name": "f"},
                     {"role": "tool", "content": "d", "tool_call_id": "x"}])"));
}

TEST(ChatMessages, TextPartsAreJoinedByNewlines) {
  EXPECT_EQ(Normalized(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                           {"type": "input_text", "text": ""}, {"type": "text", "text": "é"}]}])"),
            Same(R"([{"role": "user", "content": "a\n\né"}])"));
  EXPECT_EQ(Normalized(R"([{"role": "user", "content": []}])"),
            Same(R"([{"role": "user", "content": ""}])"));
}

TEST(ChatMessages, ArgumentsBecomeObjectsWhereTheyAreOnes) {
  EXPECT_EQ(Normalized(R"([{"role": "assistant", "content": null, "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1]}"}},
      {"id": "2", "function": {"name": "g", "arguments": {"b": 2}}},
      {"id": "3", "function": {"name": "h", "arguments": ""}},
      {"id": "4", "function": {"name": "i"}},
      {"id": "5", "function": {"name": "j", "arguments": "{\"a\": "}},
      {"id": "6", "function": {"name": "k", "arguments": "[1]"}}]}])"),
            Same(R"([{"role": "assistant", "content": "", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"b": 2}}},
      {"id": "3", "type": "function", "function": {"name": "h", "arguments": {}}},
      {"id": "4", "type": "function", "function": {"name": "i", "arguments": {}}},
      {"id": "5", "type": "function", "function": {"name": "j", "arguments": "{\"a\": "}},
      {"id": "6", "type": "function", "function": {"name": "k", "arguments": "[1]"}}]}])"));
}

TEST(ChatMessages, WhatSomeTemplatesWantOtherwiseTheyGet) {
  const std::string text = R"([{"role": "assistant", "tool_calls": [
      {"id": "call_1", "function": {"name": "f", "arguments": "{\"a\":  1}"}},
      {"id": "Ab3dE6gh9", "function": {"name": "f", "arguments": {"a": 1}}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "x"}])";
  const json::array given = *NormalizeMessages(
      Messages(text), {.null_content = true, .text_arguments = true, .short_ids = true});
  const json::object& message = given[0].as_object();
  EXPECT_TRUE(message.at("content").is_null());
  const json::array& calls = message.at("tool_calls").as_array();
  EXPECT_EQ(calls[0].at("function").at("arguments"), "{\"a\":  1}");
  EXPECT_EQ(calls[1].at("function").at("arguments"), "{\"a\":1}");
  EXPECT_EQ(calls[1].at("id"), "Ab3dE6gh9");
  const json::string id = calls[0].at("id").as_string();
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(given[1].at("tool_call_id"), id) << "a result still belongs to its call";
  EXPECT_NE(id, "call_1");
}

TEST(ChatMessages, OtherFieldsPassAndNullOnesGo) {
  EXPECT_EQ(Normalized(R"([{"role": "assistant", "content": "a", "reasoning_content": "b",
                           "refusal": null, "tool_calls": null, "audio": null},
                           {"role": "assistant", "content": "c", "tool_calls": []}])"),
            Same(R"([{"role": "assistant", "content": "a", "reasoning_content": "b"},
                     {"role": "assistant", "content": "c"}])"));
}

TEST(ChatMessages, AnAssistantMayHaveSaidNothing) {
  for (const char* silent : {R"([{"role": "assistant", "content": null}])",
                             R"([{"role": "assistant", "content": null, "tool_calls": []}])",
                             R"([{"role": "assistant"}])"}) {
    const auto result = NormalizeMessages(json::parse(silent).as_array());
    ASSERT_TRUE(result.ok()) << silent;
    EXPECT_EQ(result->at(0).at("content"), "") << silent;
  }
}

TEST(ChatMessages, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "messages: 'messages' must hold at least one"},
      {R"([1])", "messages[0]: 'messages[0]' must be an object, not a number"},
      {R"([{"content": "a"}])", "messages[0].role: "},
      {R"([{"role": 1, "content": "a"}])", "messages[0].role: "},
      {R"([{"role": "user", "content": "a"}, {"role": "bot", "content": "a"}])",
       "messages[1].role: 'messages[1].role' must be system, developer, user, assistant, tool or "
       "function, not 'bot'"},
      {R"([{"role": "user"}])", "messages[0].content: 'messages[0].content' is missing"},
      {R"([{"role": "tool", "content": null}])", "messages[0].content: "},
      {R"([{"role": "user", "content": 3}])",
       "messages[0].content: 'messages[0].content' must be a string or a list of parts, not a "
       "number"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}])",
       "messages[0].content[1]: 'messages[0].content[1]' has the type 'image_url'; only parts of "
       "type 'text' can be served"},
      {R"([{"role": "user", "content": ["a"]}])", "messages[0].content[0]: "},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0]: "},
      {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
       "messages[0].content[0]: "},
      {R"([{"role": "user", "content": "", "tool_calls": [{}]}])", "messages[0].tool_calls: "},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls: "},
      {R"([{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls[0].function: "},
      {R"([{"role": "assistant", "tool_calls": [{"function": 1}]}])",
       "messages[0].tool_calls[0].function: "},
      {R"([{"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "f"}}]}])",
       "messages[0].tool_calls[0].type: "},
      {R"([{"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]}])",
       "messages[0].tool_calls[0].id: "},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}])",
       "messages[0].tool_calls[0].function.name: "},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}])",
       "messages[0].tool_calls[0].function.arguments: "},
      {R"([{"role": "tool", "content": "", "tool_call_id": 1}])", "messages[0].tool_call_id: "},
      {R"([{"role": "user", "content": "", "name": []}])", "messages[0].name: "},
  };
  for (const auto& [text, error] : cases) {
    const Result<json::array> result = NormalizeMessages(Messages(text));
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().kind, ErrorKind::kUsage);
    EXPECT_THAT(result.error().param + ": " + result.error().message, HasSubstr(error)) << text;
  }
}

TEST(ChatMessages, LimitsHoldToTheByte) {
  const std::string two = R"([{"role": "user", "content": "1234"},
      {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{   }"}}]}])";
  EXPECT_THAT(Normalized(two, {}, {.messages_max = 2, .bytes_max = 9}), HasSubstr("[{"));
  EXPECT_THAT(Normalized(two, {}, {.messages_max = 2, .bytes_max = 8}),
              HasSubstr("messages: the messages have more than 8 bytes together"));
  EXPECT_THAT(Normalized(two, {}, {.messages_max = 1, .bytes_max = 9}),
              HasSubstr("messages: 'messages' may hold at most 1 messages, not 2"));
}

// What a client sends back after a call, with nothing but what the API asks for.
constexpr const char* kRound = R"([
    {"role": "user", "content": [{"type": "text", "text": "Paris?"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_0123456789abcdef01234567", "type": "function",
       "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]},
    {"role": "tool", "tool_call_id": "call_0123456789abcdef01234567", "content": "21 degrees"}])";

TEST(ChatMessages, PublishedTemplatesRenderACallAndItsResult) {
  QUIRE_SHARED_DATA_OR_SKIP(folder, "templates");
  const std::pair<const char*, const char*> expected[] = {
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"},
      {"Qwen-Qwen2.5-7B-Instruct",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"},
      {"Qwen-Qwen3-0.6B",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"},
      {"meta-llama-Llama-3.1-8B-Instruct",
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}<|eot_id|>"},
      {"mistralai-Mistral-Nemo-Instruct-2407",
       "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \""},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
       "get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>"},
      {"ibm-granite-granite-3.3-2B-Instruct", "21 degrees"},
  };
  const json::object extra{{"tools", json::array()}, {"add_generation_prompt", true}};
  for (const auto& [name, words] : expected) {
    std::ifstream in(folder + "/" + name + ".jinja", std::ios::binary);
    const std::string source((std::istreambuf_iterator<char>(in)), {});
    const auto chat_template = text::ChatTemplate::Create(source, "<s>", "</s>");
    ASSERT_TRUE(chat_template.ok()) << name;
    const auto messages = NormalizeMessages(Messages(kRound), DetectMessageShape(source));
    ASSERT_TRUE(messages.ok()) << messages.error().message;
    const Result<std::string> text = chat_template->Render(*messages, extra);
    ASSERT_TRUE(text.ok()) << name << ": " << text.error().message;
    EXPECT_THAT(*text, HasSubstr(words)) << name;
    EXPECT_THAT(*text, HasSubstr("21 degrees")) << name;
  }
}

}  // namespace
}  // namespace quire::server
