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

// Requests at the edges: each is a line, answered or told why not, and the job goes on.
TEST(Batch, EveryRequestAtTheEdgeEndsWithALine) {
  const ScratchFolder scratch;
  std::string all_ids = "0";
  for (int id = 1; id < 4096; ++id) all_ids += "," + std::to_string(id);
  std::string text;
  const auto add = [&](const std::string& body) {
    text += R"({"custom_id":"c","url":"/v1/completions","body":{)" + body + "}}\n";
  };
  add(R"("prompt":"The king was","max_tokens":0,"prompt_logprobs":1)");
  add(R"("prompt":"The king was","max_tokens":0,"prompt_logprobs":1,"n":2)");
  add(R"("prompt":"The","use_beam_search":true,"n":2,"min_tokens":2,"max_tokens":8,)"
      R"("stop_token_ids":[)" +
      all_ids + "]");
  add(R"("prompt":"The","use_beam_search":true,"n":2,"stop":["x"])");
  std::string bos;
  for (int i = 0; i < 100000; ++i) bos += "<s>";
  add(R"("prompt":")" + bos + R"( Once","max_tokens":2)");
  const std::string in = scratch.Write("in.jsonl", text);
  const BinaryResult result =
      RunBinary("batch " + in + " " + scratch.File("out.jsonl") + " --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = ReadLines(scratch.File("out.jsonl"));
  ASSERT_EQ(lines.size(), 5u);
  const auto body = [&](int line) {
    return lines.at("batch-line-" + std::to_string(line)).at("response").at("body").as_object();
  };
  EXPECT_EQ(body(1).at("choices").at(0).at("text").as_string(), "");
  EXPECT_GT(body(1).at("choices").at(0).at("prompt_logprobs").as_array().size(), 2u);
  EXPECT_EQ(body(2).at("choices").as_array().size(), 2u);
  EXPECT_TRUE(body(3).contains("error"));
  EXPECT_EQ(body(4).at("error").at("param").as_string(), "stop");
  EXPECT_TRUE(body(5).contains("choices"));
}

TEST(Batch, ReadsAPipeAndRefusesAnotherInputForAnOldOutput) {
  const ScratchFolder scratch;
  const std::string in = scratch.Write("in.jsonl", kRequests);
  const std::string out = scratch.File("out.jsonl");
  const BinaryResult piped = RunBinary("batch - " + out + " --json <" + in);
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(ReadLines(out).size(), 6u);
  std::string changed = kRequests;
  changed.replace(changed.find("\"a\""), 3, "\"z\"");
  const BinaryResult other =
      RunBinary("batch " + scratch.Write("other.jsonl", changed) + " " + out);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("line 1 was 'a' and is now 'z'"), std::string::npos) << other.err;
}

TEST(Batch, LogprobTokensConcatenateToTheText) {
  const ScratchFolder scratch;
  const std::string in = scratch.Write(
      "in.jsonl",
      R"({"url":"/v1/completions","body":{"prompt":"The old","max_tokens":12,"logprobs":1}})");
  ASSERT_EQ(RunBinary("batch " + in + " " + scratch.File("out.jsonl")).exit_code, 0);
  const json::value choice = ReadLines(scratch.File("out.jsonl"))
                                 .at("batch-line-1")
                                 .at("response")
                                 .at("body")
                                 .at("choices")
                                 .at(0);
  std::string text;
  for (const json::value& token : choice.at("logprobs").at("tokens").as_array()) {
    text += token.as_string();
  }
  EXPECT_EQ(text, choice.at("text").as_string());
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
                            BadRun{"run -m /no/such/model hello", 3, "/no/such/model"},
                            BadRun{"run --threads=1 --raw=maybe hello", 2, "--raw=maybe"},
                            BadRun{"run --max-model-len 1 hello", 2, "at least 2"},
                            BadRun{"tokenize --file .", 7, "it is a folder"}}) {
    const BinaryResult result = RunBinary(bad.arguments);
    EXPECT_EQ(result.exit_code, bad.exit_code) << result.err;
    EXPECT_NE(result.err.find(bad.says), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(Run, SpeculationSaysTheSameAndTellsHowOftenItWasRight) {
  const std::string run =
      "run --raw --json --max-tokens 120 --temperature 0.2 --seed 3 "
      "\"The sea was calm, and the sea was calm, and the\" ";
  const json::object plain = json::parse(RunBinary(run).out).as_object();
  EXPECT_EQ(plain.at("draft_tokens").as_int64(), 0);
  for (const std::string how : {"--speculate ngram", "--speculate suffix,ngram",
                                "--draft-model models/draft/draft-q8_0.gguf"}) {
    const BinaryResult result = RunBinary(run + how + " --num-speculative-tokens 4");
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json::object said = json::parse(result.out).as_object();
    EXPECT_EQ(said.at("token_ids"), plain.at("token_ids")) << how;
    EXPECT_GT(said.at("draft_tokens_accepted").as_int64(), 0) << how;
    EXPECT_GE(said.at("draft_tokens").as_int64(), said.at("draft_tokens_accepted").as_int64());
  }
}

TEST(Run, SpeculationThatCannotBeIsRefusedInOneSentence) {
  const std::pair<const char*, const char*> cases[] = {
      {"--speculate magic", "there are ngram and suffix"},
      {"--num-speculative-tokens many", "neither auto nor a number from 1 to 32"},
      {"--num-speculative-tokens 33", "neither auto nor a number from 1 to 32"},
      {"--draft-model nowhere.gguf", "nowhere.gguf"}};
  for (const auto& [flags, message] : cases) {
    const BinaryResult result = RunBinary(std::string("run hello ") + flags);
    EXPECT_NE(result.exit_code, 0) << flags;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace quire::cli
