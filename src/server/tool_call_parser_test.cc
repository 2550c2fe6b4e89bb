#include "server/tool_call_parser.h"

#include <array>
#include <random>
#include <set>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tool_call_testing.h"
#include "testing/random_runs.h"

namespace quire::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum ToolCallFormat;

Answer Parse(ToolCallFormat format, std::string_view text) {
  return ParseToolCalls(format, {text});
}

// What the tests compare of a call: its name and the text of its arguments.
std::vector<std::string> Calls(const Answer& answer) {
  std::vector<std::string> calls;
  for (const AnswerCall& call : answer.calls) calls.push_back(call.name + call.arguments);
  return calls;
}

// A text that models of a family write, and what it means.
struct Sample {
  ToolCallFormat format;
  std::string text;
  std::string content;
  std::vector<std::string> calls;
};

// Qwen 2.5 and 3, Hermes 2 Pro and 3.
std::vector<Sample> HermesSamples() {
  return {
      {kHermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
       "</tool_call>",
       "",
       {R"(get_weather{"city": "Paris"})"}},
      {kHermes,
       "I'll look both up.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Paris\", \"unit\": \"c\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"東京\"}}\n</tool_call>",
       "I'll look both up.",
       {R"(get_weather{"city": "Paris", "unit": "c"})", R"(get_weather{"city": "東京"})"}},
      {kHermes,
       "<think>\nThe user wants {the} weather, so <tool_call> it is.\n</think>\n\n<tool_call>\n"
       "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "<think>\nThe user wants {the} weather, so <tool_call> it is.\n</think>",
       {"now{}"}},
      {kHermes,
       "<tool_call>\n{\"arguments\": {\"symbol\": \"TSLA\"}, \"name\": \"get_stock\"}\n"
       "</tool_call>\n",
       "",
       {R"(get_stock{"symbol": "TSLA"})"}},
      // Pretty-printed, with everything in it that looks like syntax.
      {kHermes,
       "<tool_call>\n{\n  \"name\": \"write_file\",\n  \"arguments\": {\n    \"path\": "
       "\"a.json\",\n"
       "    \"text\": \"{\\\"a\\\": [1, {\\\"b\\\": \\\"}}</tool_call>\\\"}]}\\\\\",\n    \"n\": "
       "[[], {}, -1.5e+3, null]\n  }\n}\n</tool_call>",
       "",
       {"write_file{\n    \"path\": \"a.json\",\n    \"text\": \"{\\\"a\\\": [1, {\\\"b\\\": "
        "\\\"}}</tool_call>\\\"}]}\\\\\",\n    \"n\": [[], {}, -1.5e+3, null]\n  }"}},
      {kHermes,
       R"(<tool_call>{"name": "f", "arguments": {"é": "\u00e9 \ud83d\ude00 😀"}})",
       "",
       {R"(f{"é": "\u00e9 \ud83d\ude00 😀"})"}},
  };
}

// What small models make of it: two objects in one tag, a missing brace, a missing closing tag.
std::vector<Sample> ErringHermesSamples() {
  return {
      {kHermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n"
       "</tool_call>",
       "",
       {"f{}", "g{}"}},
      {kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>\nDone.",
       "Done.",
       {R"(f{"a": 1})"}},
      {kHermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n<tool_call>\n{\"name\": \"g\", "
       "\"arguments\": {}}",
       "",
       {"f{}", "g{}"}},
      {kHermes,
       R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"b\"}"}</tool_call>)",
       "",
       {R"(f{"a": "b"})"}},
      {kHermes, R"(<tool_call>{"name": "f"}</tool_call>)", "", {"f{}"}},
      {kHermes, R"(A <tool_call>{"name": "f", "arguments": {}}</tool_call> B)", "A B", {"f{}"}},
  };
}

std::vector<Sample> OtherSamples() {
  return {
      // Llama 3.1 to 3.3.
      {kLlama3,
       R"({"name": "get_weather", "parameters": {"city": "Paris"}})",
       "",
       {R"(get_weather{"city": "Paris"})"}},
      {kLlama3,
       R"(<|python_tag|>{"type": "function", "name": "f", "parameters": {"q": "a;b"}})",
       "",
       {R"(f{"q": "a;b"})"}},
      {kLlama3,
       R"({"name": "f", "parameters": {"a": {"b": {}}}}; {"name": "g", "parameters": {}} ;)"
       "\n<|python_tag|>{\"name\": \"h\", \"parameters\": {}}",
       "",
       {R"(f{"a": {"b": {}}})", "g{}", "h{}"}},
      {kLlama3,
       "Here you go:\n{\"name\": \"f\", \"parameters\": {\"x\": \"1\"}}",
       "Here you go:",
       {R"(f{"x": "1"})"}},
      {kLlama3, R"({"name": "f", "parameters": null})", "", {"f{}"}},
      // Mistral 7B v0.3 and Nemo, then Small 3.2 and its kin.
      {kMistral,
       R"([TOOL_CALLS][{"name": "f", "arguments": {"a": "b]"}, "id": "Ab3dE6gh9"}, )"
       R"({"name": "g", "arguments": {}}])",
       "",
       {R"(f{"a": "b]"})", "g{}"}},
      {kMistral, R"([TOOL_CALLS] {"name": "f", "arguments": {"a": [1]}})", "", {R"(f{"a": [1]})"}},
      {kMistral,
       R"(Let me see.[TOOL_CALLS]get_weather{"city": "Paris"})",
       "Let me see.",
       {R"(get_weather{"city": "Paris"})"}},
      {kMistral,
       R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g-2[CALL_ID]q1W2e3R4t[ARGS]{})",
       "",
       {R"(f{"a": 1})", "g-2{}"}},
      // Granite 3.0 and 3.1 to 3.3.
      {kGranite, R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1}}])", "", {R"(f{"a": 1})"}},
      {kGranite,
       "Sure.\n<tool_call>[{\"arguments\": {\"a\": 1}, \"name\": \"f\"}, {\"name\": \"g\", "
       "\"arguments\": {}}]\n",
       "Sure.",
       {R"(f{"a": 1})", "g{}"}},
      {kGranite, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)", "", {"f{}"}},
  };
}

const std::vector<Sample>& Samples() {
  static const std::vector<Sample> all = [] {
    std::vector<Sample> samples = HermesSamples();
    for (const auto& more : {ErringHermesSamples(), OtherSamples()}) {
      samples.insert(samples.end(), more.begin(), more.end());
    }
    return samples;
  }();
  return all;
}

// Texts without a call: they come out as they are.
const std::vector<std::pair<ToolCallFormat, std::string>>& Prose() {
  static const std::vector<std::pair<ToolCallFormat, std::string>> prose = {
      {kHermes, ""},
      {kHermes, " \n leading, and trailing \n\n"},
      {kHermes, "Write <tool_call> and </tool_call> around it; <<tool_call>> and <tool_cal>."},
      {kHermes, "<tool_call>\n{'name': 'f', 'arguments': {}}\n</tool_call>\n"},
      {kHermes, "<tool_call>\nget_weather(city=\"Paris\")\n</tool_call>"},
      {kHermes, "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": \"two words\", \"arguments\": {}}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"none\"}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": {}, \"arguments\": {}}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>"},
      {kHermes, "<tool_call>[]</tool_call>"},
      {kHermes, "<tool_call>\n{\"name\": \"get_wea"},
      {kHermes, "<tool_ca"},
      {kHermes, "if (a) { b(); } [1, 2] {\"name\": \"f\", \"arguments\": {}}"},
      {kLlama3, "{\"name\": \"Alice\", \"age\": 3}"},
      {kLlama3, "{\"name\": \"Alice\"}"},
      {kLlama3, "{\"i\": 1, \"name\": \"f\", \"parameters\": {}}"},
      {kLlama3, "int f() { return 0; }\n{}\n{ \"parameters\": {\"a\": 1} } {"},
      {kLlama3, "<|python_tag|>print({1: 2})"},
      {kMistral, "[TOOL_CALLS] is a marker, [TOOL_CALLS][] and [TOOL_CALLS]f[ARG]{} are no calls"},
      {kMistral, "[TOOL_CALLS]f[CALL_ID]x y[ARGS]{}"},
      {kMistral, "[TOOL_CALLS][{\"name\": \"f\""},
      {kGranite, "<|tool_call|><tool_call> [x] <|tool_call"},
  };
  return prose;
}

TEST(ToolCallParser, ReadsWhatEachFamilyWrites) {
  for (const Sample& sample : Samples()) {
    const Answer answer = Parse(sample.format, sample.text);
    EXPECT_EQ(answer.content, sample.content) << sample.text;
    EXPECT_EQ(Calls(answer), sample.calls) << sample.text;
  }
}

TEST(ToolCallParser, CompleteCallsHaveArgumentsThatAreJsonObjects) {
  for (const Sample& sample : Samples()) {
    for (const AnswerCall& call : Parse(sample.format, sample.text).calls) {
      EXPECT_TRUE(boost::json::parse(call.arguments).is_object()) << call.arguments;
    }
  }
}

TEST(ToolCallParser, TextWithoutCallsComesOutUnchanged) {
  for (const auto& [format, text] : Prose()) {
    const Answer answer = Parse(format, text);
    EXPECT_EQ(answer.content, text);
    EXPECT_THAT(answer.calls, IsEmpty()) << text;
  }
}

// Every text of this file, the other families' too.
std::vector<std::pair<ToolCallFormat, std::string>> AllTexts() {
  std::vector<std::string> texts;
  for (const Sample& sample : Samples()) texts.push_back(sample.text);
  for (const auto& [format, text] : Prose()) texts.push_back(text);
  std::vector<std::pair<ToolCallFormat, std::string>> all;
  for (const ToolCallFormat format : {kHermes, kLlama3, kMistral, kGranite}) {
    for (const std::string& text : texts) all.emplace_back(format, text);
  }
  return all;
}

TEST(ToolCallParser, EverySplitInTwoGivesTheSame) {
  for (const auto& [format, text] : AllTexts()) {
    const Answer whole = Parse(format, text);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const std::string_view view = text;
      ASSERT_EQ(ParseToolCalls(format, {view.substr(0, cut), view.substr(cut)}), whole)
          << text << " cut at " << cut;
    }
  }
}

TEST(ToolCallParser, SingleBytesAndRandomPiecesGiveTheSame) {
  std::mt19937_64 random(testing::TestSeed(17));
  for (const auto& [format, text] : AllTexts()) {
    const Answer whole = Parse(format, text);
    for (const size_t length_max : {1, 3, 9, 40}) {
      std::vector<std::string_view> pieces;
      for (size_t at = 0; at < text.size();) {
        const size_t length = 1 + random() % length_max;
        pieces.push_back(std::string_view(text).substr(at, length));
        at += length;
      }
      ASSERT_EQ(ParseToolCalls(format, pieces), whole) << text;
    }
  }
}

TEST(ToolCallParser, InterruptedCallsKeepTheArgumentsWrittenSoFar) {
  const std::string text = R"(<tool_call>{"name": "f", "arguments": {"city": "Par)";
  EXPECT_THAT(Calls(Parse(kHermes, text)), ElementsAre(R"(f{"city": "Par)"));
  EXPECT_THAT(Calls(Parse(kMistral, R"([TOOL_CALLS]f[ARGS]{"a)")), ElementsAre(R"(f{"a)"));
  EXPECT_THAT(Calls(Parse(kLlama3, R"({"name": "f", "parameters": {)")), ElementsAre("f{"));
}

TEST(ToolCallParser, EveryPrefixLosesNothingButSyntax) {
  for (const Sample& sample : Samples()) {
    const Answer whole = Parse(sample.format, sample.text);
    for (size_t length = 0; length < sample.text.size(); ++length) {
      const Answer answer = Parse(sample.format, std::string_view(sample.text).substr(0, length));
      ASSERT_LE(answer.calls.size(), whole.calls.size());
      for (size_t i = 0; i < answer.calls.size(); ++i) {
        ASSERT_EQ(answer.calls[i].name, whole.calls[i].name);
        ASSERT_TRUE(whole.calls[i].arguments.starts_with(answer.calls[i].arguments));
      }
      // Until the first call everything is content, an unfinished call included.
      if (answer.calls.empty()) {
        ASSERT_EQ(answer.content, sample.text.substr(0, length));
      }
    }
  }
}

TEST(ToolCallParser, MalformedArgumentsEndTheCallAndTheRestIsContent) {
  const Answer answer =
      Parse(kHermes, R"(<tool_call>{"name": "f", "arguments": {"a": oops}}</tool_call> Sorry.)");
  EXPECT_THAT(Calls(answer), ElementsAre(R"(f{"a": )"));
  EXPECT_EQ(answer.content, "oops}} Sorry.");
}

TEST(ToolCallParser, MalformedCallAfterAGoodOneIsContent) {
  const Answer answer = Parse(
      kHermes,
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>oops</tool_call>");
  EXPECT_THAT(Calls(answer), ElementsAre("f{}"));
  EXPECT_EQ(answer.content, "<tool_call>oops</tool_call>");
}

TEST(ToolCallParser, CallWithoutItsLastBraceMayBeFollowedByAnother) {
  const Answer answer = Parse(kHermes,
                              "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\n"
                              "{\"name\": \"g\", \"arguments\": {}}</tool_call>");
  EXPECT_THAT(Calls(answer), ElementsAre("f{\"a\": 1}", "g{}"));
  EXPECT_EQ(answer.content, "");
}

TEST(ToolCallParser, ClosingMarkerCutAtTheEndIsNoContent) {
  const Answer answer = Parse(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_");
  EXPECT_THAT(Calls(answer), ElementsAre("f{}"));
  EXPECT_EQ(answer.content, "");
}

TEST(ToolCallParser, CommasAndBracketsCountOnlyInTheList) {
  const Answer answer =
      Parse(kMistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}], and [more]");
  EXPECT_THAT(Calls(answer), ElementsAre("f{}"));
  EXPECT_EQ(answer.content, ", and [more]");
}

TEST(ToolCallParser, TextIsHeldBackOnlyWhileItCanBeACall) {
  ToolCallParser parser(kHermes, 1);
  EXPECT_THAT(parser.Feed("a <tool_"), ElementsAre(ToolDelta(ContentDelta{"a"})));
  EXPECT_THAT(parser.Feed("x"), ElementsAre(ToolDelta(ContentDelta{" <tool_x"})));
  EXPECT_THAT(parser.Feed("<tool_call>"), IsEmpty());
  EXPECT_THAT(parser.Feed(" \n"), IsEmpty());
  EXPECT_THAT(parser.Feed("y"), ElementsAre(ToolDelta(ContentDelta{"<tool_call> \ny"})));

  ToolCallParser llama(kLlama3, 1);
  EXPECT_THAT(llama.Feed("{"), IsEmpty());
  EXPECT_THAT(llama.Feed("\"n"), IsEmpty());
  EXPECT_THAT(llama.Feed("o"), ElementsAre(ToolDelta(ContentDelta{"{\"no"})));
}

TEST(ToolCallParser, ArgumentsStreamAsTheyAreWritten) {
  ToolCallParser parser(kHermes, 1);
  EXPECT_THAT(parser.Feed("<tool_call>{\"name\": \"f\", \"arguments\": "), IsEmpty());
  const std::string id = ToolCallId(1, 0);
  EXPECT_THAT(parser.Feed("{\"a"), ElementsAre(ToolDelta(CallStartDelta{0, id, "f"}),
                                               ToolDelta(ArgumentsDelta{0, "{\"a"})));
  EXPECT_THAT(parser.Feed("\": 1"), ElementsAre(ToolDelta(ArgumentsDelta{0, "\": 1"})));
  EXPECT_THAT(parser.Feed("}}"), ElementsAre(ToolDelta(ArgumentsDelta{0, "}"})));
  EXPECT_THAT(parser.Feed("</tool_call>"), IsEmpty());
  EXPECT_THAT(parser.Finish(), IsEmpty());
  EXPECT_EQ(parser.calls(), 1);
}

TEST(ToolCallParser, IdsAreReproducibleAndDistinct) {
  std::set<std::string> ids;
  for (const uint64_t seed : {0u, 1u, 2u}) {
    for (int index = 0; index < 100; ++index) ids.insert(ToolCallId(seed, index));
  }
  EXPECT_THAT(ids, SizeIs(300));
  for (const std::string& id : ids) {
    EXPECT_EQ(id.size(), 29u);
    EXPECT_TRUE(id.starts_with("call_"));
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 5), std::string::npos) << id;
  }
  EXPECT_EQ(ToolCallId(5, 2), ToolCallId(5, 2));
}

TEST(ToolCallParser, NoMoreThanAMegabyteIsHeldBackWhateverTheTextPretends) {
  const std::string megabyte(1 << 20, 'x');
  const std::string spaces(1 << 20, ' ');
  const std::pair<ToolCallFormat, std::array<std::string, 2>> texts[] = {
      {kHermes, {"<tool_call>{\"arguments\": {\"a\": \"", megabyte}},
      {kLlama3, {"{\"id\": \"", megabyte}},
      {kMistral, {"[TOOL_CALLS]f[CALL_ID]", megabyte}},
      {kGranite, {"<|tool_call|>[", spaces}},
      {kGranite, {"a ", spaces}},
  };
  for (const auto& [format, text] : texts) {
    ToolCallParser parser(format, 1);
    Answer answer;
    AddDeltas(parser.Feed(text[0]), answer);
    for (int i = 0; i < 3; ++i) AddDeltas(parser.Feed(text[1]), answer);
    const std::string fed = text[0] + text[1] + text[1] + text[1];
    EXPECT_LE(fed.size() - answer.content.size(), 1u << 20) << text[0];
    AddDeltas(parser.Feed("b"), answer);
    AddDeltas(parser.Finish(), answer);
    EXPECT_EQ(answer.content, fed + "b");
  }
}

TEST(ToolCallParser, ArgumentsMayBeLargerThanWhatIsEverHeldBack) {
  const std::string megabyte(1 << 20, 'x');
  const Answer answer =
      ParseToolCalls(kHermes, {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", megabyte,
                               megabyte, "\"}}</tool_call>"});
  EXPECT_THAT(Calls(answer), ElementsAre("f{\"a\": \"" + megabyte + megabyte + "\"}"));
}

TEST(ToolCallParser, NestingBeyondTheLimitIsMalformedAndCrashesNothing) {
  const std::string deep(100'000, '[');
  const Answer answer =
      Parse(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + deep);
  ASSERT_THAT(answer.calls, SizeIs(1));
  EXPECT_EQ(answer.calls[0].arguments + answer.content, "{\"a\": " + deep);
}

}  // namespace
}  // namespace quire::server
