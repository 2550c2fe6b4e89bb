#include "server/tool_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tool_call_testing.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum ToolCallFormat;
using Mode = ToolChoice::Mode;

constexpr std::string_view kTools = R"([
    {"type": "function", "function": {"name": "f", "description": "does f", "strict": true,
     "parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}},
                    "$defs": {"x": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}}}},
    {"type": "function", "function": {"name": "ns/g"}}])";

Result<ToolOptions> Options(std::string_view choice) {
  return ParseToolOptions(
      json::parse(fmt::format(R"({{"tools": {}, {}}})", kTools, choice)).as_object());
}

std::string ErrorOf(std::string_view body) {
  const Result<ToolOptions> options = ParseToolOptions(json::parse(body).as_object());
  if (options.ok()) return "no error";
  EXPECT_EQ(options.error().kind, ErrorKind::kUsage);
  return options.error().param + ": " + options.error().message;
}

TEST(ToolChoice, ToolsAreReadWithTheirDefaults) {
  const ToolOptions options = *Options(R"("x": 1)");
  ASSERT_THAT(options.tools, SizeIs(2));
  EXPECT_EQ(options.tools[0].name, "f");
  EXPECT_EQ(options.tools[0].description, "does f");
  EXPECT_TRUE(options.tools[0].parameters.at("properties").as_object().contains("a"));
  EXPECT_EQ(options.tools[1].description, "");
  EXPECT_EQ(options.tools[1].parameters, json::parse(R"({"type": "object", "properties": {}})"));
  EXPECT_EQ(options.choice.mode, Mode::kAuto);
  EXPECT_TRUE(options.parallel);
}

TEST(ToolChoice, EveryChoiceIsRead) {
  EXPECT_EQ(Options(R"("tool_choice": "none")")->choice.mode, Mode::kNone);
  EXPECT_EQ(Options(R"("tool_choice": "auto")")->choice.mode, Mode::kAuto);
  EXPECT_EQ(Options(R"("tool_choice": null)")->choice.mode, Mode::kAuto);
  EXPECT_EQ(Options(R"("tool_choice": "required")")->choice.mode, Mode::kRequired);
  const ToolOptions named =
      *Options(R"("tool_choice": {"type": "function", "function": {"name": "ns/g"}})");
  EXPECT_EQ(named.choice.mode, Mode::kNamed);
  EXPECT_EQ(named.choice.name, "ns/g");
  EXPECT_FALSE(Options(R"("parallel_tool_calls": false)")->parallel);
}

TEST(ToolChoice, WithoutToolsNothingIsCalled) {
  for (const char* body : {"{}", R"({"tools": []})", R"({"tools": null, "tool_choice": "auto"})",
                           R"({"tool_choice": "none"})"}) {
    const ToolOptions options = *ParseToolOptions(json::parse(body).as_object());
    EXPECT_FALSE(options.MayCall()) << body;
    EXPECT_THAT(ToolsForTemplate(options), IsEmpty());
  }
}

TEST(ToolChoice, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"tools": {}})", "tools: 'tools' must be a list, not an object"},
      {R"({"tools": [1]})", "tools[0]: "},
      {R"({"tools": [{"function": {"name": "f"}}]})", "tools[0].type: "},
      {R"({"tools": [{"type": "web_search"}]})", "tools[0].type: "},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function: "},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}},
                     {"type": "function", "function": {"name": "a b"}}]})",
       "tools[1].function.name: 'tools[1].function.name' must be a string of 1 to 128 letters"},
      {R"({"tools": [{"type": "function", "function": {}}]})", "tools[0].function.name: "},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}},
                     {"type": "function", "function": {"name": "f"}}]})",
       "tools[1].function.name: two tools are called 'f'"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]})",
       "tools[0].function.description: "},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]})",
       "tools[0].function.parameters: "},
      {R"({"tool_choice": "required"})", "tool_choice: 'tool_choice' asks for a call"},
      {R"({"tool_choice": "any"})", "tool_choice: 'tool_choice' must be none, auto, required or"},
      {R"({"tool_choice": 1})", "tool_choice: "},
      {R"({"tool_choice": {"type": "function"}})", "tool_choice.function.name: "},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}],
           "tool_choice": {"type": "function", "function": {"name": "g"}}})",
       "tool_choice.function.name: 'tool_choice' names 'g', which is not in 'tools'"},
      {R"({"parallel_tool_calls": 1})", "parallel_tool_calls: "},
  };
  for (const auto& [body, error] : cases) EXPECT_THAT(ErrorOf(body), HasSubstr(error)) << body;
}

TEST(ToolChoice, MoreThan128ToolsAreTooMany) {
  json::array tools;
  for (int i = 0; i < 128; ++i) {
    tools.push_back({{"type", "function"}, {"function", {{"name", fmt::format("f{}", i)}}}});
  }
  EXPECT_TRUE(ParseToolOptions({{"tools", tools}}).ok());
  tools.push_back({{"type", "function"}, {"function", {{"name", "g"}}}});
  EXPECT_THAT(ErrorOf(json::serialize(json::object{{"tools", tools}})),
              HasSubstr("tools: 'tools' may hold at most 128 tools, not 129"));
}

TEST(ToolChoice, TemplatesSeeEveryFieldOfATool) {
  EXPECT_EQ(json::serialize(ToolsForTemplate(*Options(R"("tool_choice": "auto")")).at(1)),
            R"({"type":"function","function":{"name":"ns/g","description":"",)"
            R"("parameters":{"type":"object","properties":{}}}})");
  EXPECT_THAT(ToolsForTemplate(*Options(R"("tool_choice": "none")")), IsEmpty());
}

TEST(ToolChoice, NothingIsForcedUnlessAsked) {
  EXPECT_FALSE(ConstrainToolCall(kHermes, *Options(R"("tool_choice": "auto")")));
  EXPECT_FALSE(ConstrainToolCall(kHermes, *Options(R"("tool_choice": "none")")));
}

TEST(ToolChoice, SchemaAllowsTheOfferedToolsWithTheirArguments) {
  const auto constrained = ConstrainToolCall(kHermes, *Options(R"("tool_choice": "required")"));
  ASSERT_TRUE(constrained);
  EXPECT_EQ(constrained->schema, json::parse(R"({
    "anyOf": [
      {"type": "object", "properties": {"name": {"const": "f"},
                                        "arguments": {"$ref": "#/$defs/f"}},
       "required": ["name", "arguments"], "additionalProperties": false},
      {"type": "object", "properties": {"name": {"const": "ns/g"},
                                        "arguments": {"$ref": "#/$defs/ns~1g"}},
       "required": ["name", "arguments"], "additionalProperties": false}],
    "$defs": {
      "f": {"type": "object", "properties": {"a": {"$ref": "#/$defs/f/$defs/x"}},
            "$defs": {"x": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/f"}]}}},
      "ns/g": {"type": "object", "properties": {}}}})"));
}

TEST(ToolChoice, NamedChoiceAllowsThatToolOnly) {
  const auto constrained = ConstrainToolCall(
      kLlama3, *Options(R"("tool_choice": {"type": "function", "function": {"name": "f"}})"));
  ASSERT_TRUE(constrained);
  const json::array& calls = constrained->schema.at("anyOf").as_array();
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0].at("properties").at("name").at("const"), "f");
  EXPECT_TRUE(calls[0].at("properties").as_object().contains("parameters"));
  EXPECT_FALSE(constrained->schema.at("$defs").as_object().contains("ns/g"));
}

TEST(ToolChoice, SeveralCallsAreAllowedOnlyInParallel) {
  const ToolOptions many = *Options(R"("tool_choice": "required")");
  const ToolOptions one = *Options(R"("tool_choice": "required", "parallel_tool_calls": false)");
  for (const ToolCallFormat format : {kHermes, kLlama3}) {
    EXPECT_EQ(ConstrainToolCall(format, many)->schema, ConstrainToolCall(format, one)->schema);
  }
  for (const ToolCallFormat format : {kMistral, kGranite}) {
    EXPECT_FALSE(ConstrainToolCall(format, many)->schema.contains("maxItems"));
    EXPECT_EQ(ConstrainToolCall(format, one)->schema.at("maxItems"), 1);
    EXPECT_EQ(ConstrainToolCall(format, many)->schema.at("minItems"), 1);
  }
}

// The shape and the parser agree: what is forced is understood.
TEST(ToolChoice, ForcedCallsAreParsedAsCalls) {
  const ToolOptions options = *Options(R"("tool_choice": "required")");
  for (const ToolCallFormat format : {kHermes, kLlama3, kMistral, kGranite}) {
    const ConstrainedToolCall forced = *ConstrainToolCall(format, options);
    const bool is_list = forced.schema.contains("items");
    const std::string key = format == kLlama3 ? "parameters" : "arguments";
    const std::string call = fmt::format(R"({{"name": "f", "{}": {{"a": 1}}}})", key);
    const std::string value = is_list ? "[" + call + ", " + call + "]" : call;
    const std::string text = forced.prefix + value + forced.suffix;
    const Answer answer = ParseToolCalls(format, {text});
    EXPECT_EQ(answer.content, "") << text;
    ASSERT_THAT(answer.calls, SizeIs(is_list ? 2 : 1)) << text;
    for (const AnswerCall& parsed : answer.calls) EXPECT_EQ(parsed.arguments, R"({"a": 1})");
  }
}

}  // namespace
}  // namespace quire::server
