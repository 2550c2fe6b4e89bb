// run and batch through the real program: what a person meets first, and what goes wrong.
#include <map>
#include <sstream>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

// A good line, two prompts of two choices, three bad lines, an empty one, a chat.
constexpr const char* kRequests =
    R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"The ship","max_tokens":5}}
{"custom_id":"b","url":"/v1/completions","body":{"prompt":["The old","A"],"max_tokens":4,"n":2}}
not json
{"custom_id":"d","url":"/v1/completions","body":{"prompt":"x","max_tokens":-1}}

{"custom_id":"e","url":"/v1/embeddings","body":{}}
)"
    R"({"custom_id":"f","url":"/v1/chat/completions","body":)"
    R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":3}}
)";

std::map<std::string, json::object> ReadLines(const std::string& path) {
  std::map<std::string, json::object> lines;
  std::istringstream text(ScratchFolder::Read(path));
  for (std::string line; std::getline(text, line);) {
    json::object object = json::parse(line).as_object();
    lines[std::string(object.at("id").as_string())] = object;
  }
  return lines;
}

TEST(Batch, AnswersGoodLinesAndMarksBadOnes) {
  const ScratchFolder scratch;
  const std::string in = scratch.Write("in.jsonl", kRequests);
  const std::string out = scratch.File("out.jsonl");
  const BinaryResult result = RunBinary("batch " + in + " " + out + " --json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json::object summary = json::parse(result.out).as_object();
  EXPECT_EQ(summary.at("succeeded").as_int64(), 3);
  EXPECT_EQ(summary.at("failed").as_int64(), 3);

  const auto lines = ReadLines(out);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.at("batch-line-1").at("custom_id").as_string(), "a");
  const json::value& body = lines.at("batch-line-2").at("response").at("body");
  EXPECT_EQ(body.at("choices").as_array().size(), 4u);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 16);
  EXPECT_EQ(lines.at("batch-line-3").at("response").at("status_code").as_int64(), 400);
  EXPECT_TRUE(lines.at("batch-line-3").at("custom_id").is_null());
  EXPECT_EQ(lines.at("batch-line-4").at("response").at("body").at("error").at("param").as_string(),
            "max_tokens");
  EXPECT_TRUE(lines.at("batch-line-6").at("error").is_object());
  EXPECT_EQ(lines.at("batch-line-7").at("response").at("body").at("object").as_string(),
            "chat.completion");
}

TEST(Batch, ResumesAfterAnInterruptionAndEndsWithTheSameAnswers) {
  const ScratchFolder scratch;
  const std::string in = scratch.Write("in.jsonl", kRequests);
  const std::string whole = scratch.File("whole.jsonl");
  ASSERT_EQ(RunBinary("batch " + in + " " + whole).exit_code, 0);
  // As if killed while writing the third line.
  const std::string text = ScratchFolder::Read(whole);
  const size_t third = text.find('\n', text.find('\n') + 1) + 1;
  const std::string cut = scratch.Write("cut.jsonl", text.substr(0, third + 20));
  const BinaryResult result = RunBinary("batch " + in + " " + cut + " --json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("resumed").as_int64(), 2);
  const auto resumed = ReadLines(cut);
  const auto expected = ReadLines(whole);
  ASSERT_EQ(resumed.size(), expected.size());
  for (const auto& [id, line] : expected) {
    const json::value& body = line.at("response").at("body");
    if (!body.as_object().contains("choices")) continue;
    EXPECT_EQ(resumed.at(id).at("response").at("body").at("choices"), body.at("choices")) << id;
  }
}

TEST(Batch, RefusesToAppendToAFileThatIsNoBatchOutput) {
  const ScratchFolder scratch;
  const std::string in = scratch.Write("in.jsonl", kRequests);
  const std::string other = scratch.Write("notes.txt", "my notes\n");
  EXPECT_NE(RunBinary("batch " + in + " " + other).exit_code, 0);
  EXPECT_EQ(ScratchFolder::Read(other), "my notes\n");
}

TEST(Run, GreedyTextIsTheSameEveryTimeAndBeginsWithThePrompt) {
  const std::string arguments = "run --temperature 0 --max-tokens 20 'The ship sailed'";
  const BinaryResult first = RunBinary(arguments);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("The ship sailed up")) << first.out;
  EXPECT_EQ(RunBinary(arguments + " --threads 1 --block-size 16 --max-num-batched-tokens 70").out,
            first.out);
}

struct BadRun {
  const char* arguments;
  int exit_code;
  const char* says;
};

TEST(Run, WhatCannotWorkIsOneClearSentence) {
  std::string long_prompt;
  for (int i = 0; i < 1500; ++i) long_prompt += "word ";
  const std::string too_long = "run '" + long_prompt + "'";
  for (const BadRun& bad : {BadRun{"run ''", 2, "the prompt is empty"},
                            BadRun{"run --max-tokens 0 hello", 2, "max_tokens is 0"},
                            BadRun{too_long.c_str(), 2, "the longest sequence is 1024 tokens"},
                            BadRun{"run --no-such-flag hello", 2, "--no-such-flag"},
                            BadRun{"run --kv-cache-memory 1KiB hello", 6, "1024 bytes"},
                            BadRun{"run --max-model-len 5000 hello", 2, "at most 1024"},
                            BadRun{"run -m /no/such/model hello", 3, "/no/such/model"}}) {
    const BinaryResult result = RunBinary(bad.arguments);
    EXPECT_EQ(result.exit_code, bad.exit_code) << result.err;
    EXPECT_NE(result.err.find(bad.says), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace quire::cli
