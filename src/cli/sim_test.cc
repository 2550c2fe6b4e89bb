// quire sim: reports, trace files, and what is wrong with them.
#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"
#include "cli/trace_file.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using sched::TraceRequest;

TEST(TraceFile, WhatIsWrittenIsWhatIsRead) {
  sched::TraceOptions options;
  options.kind = sched::TraceKind::kAdversarial;
  options.requests = 200;
  const std::vector<TraceRequest> trace = sched::MakeTrace(options);
  const Result<std::vector<TraceRequest>> read = ParseTrace(FormatTrace(trace), "t");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), trace.size());
  for (size_t i = 0; i < trace.size(); ++i) {
    EXPECT_DOUBLE_EQ((*read)[i].arrival_s, trace[i].arrival_s);
    EXPECT_EQ(sched::PromptOf((*read)[i]), sched::PromptOf(trace[i]));
    EXPECT_EQ((*read)[i].output_tokens, trace[i].output_tokens);
    EXPECT_EQ((*read)[i].priority, trace[i].priority);
    EXPECT_EQ((*read)[i].n, trace[i].n);
    EXPECT_EQ((*read)[i].cache_salt, trace[i].cache_salt);
  }
}

TEST(TraceFile, RecordedPromptsKeepTheirTokensAndLinesAreSortedByArrival) {
  const auto read = ParseTrace(
      "{\"arrival_s\":2,\"prompt\":[5,6],\"output_tokens\":3}\n\n"
      "{\"arrival_s\":1,\"prompt_tokens\":4,\"output_tokens\":1}\n",
      "t");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].prompt_tokens, 4);
  EXPECT_EQ(sched::PromptOf((*read)[1]), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(FormatTrace({(*read)[1]}),
            "{\"arrival_s\":2E0,\"prompt\":[5,6],\"output_tokens\":3}\n");
}

TEST(TraceFile, ALineThatIsNoRequestIsNamed) {
  struct Bad {
    const char* line;
    const char* says;
  };
  for (const Bad& bad : {Bad{"nonsense", "no JSON"}, Bad{"[1]", "no JSON object"},
                         Bad{"{\"output_tokens\":3}", "the prompt is empty"},
                         Bad{"{\"prompt_tokens\":3}", "'output_tokens' is missing"},
                         Bad{"{\"prompt_tokens\":-3,\"output_tokens\":1}", "prompt_tokens"},
                         Bad{R"({"prompt":[1],"prompt_tokens":3,"output_tokens":1})", "not both"},
                         Bad{"{\"prompt\":\"text\",\"output_tokens\":1}", "list of token ids"},
                         Bad{"{\"prefix_tokens\":3,\"output_tokens\":1}", "needs 'prefix'"}}) {
    const std::string good = "{\"prompt_tokens\":1,\"output_tokens\":1}\n";
    const auto read = ParseTrace(good + bad.line, "trace.jsonl");
    ASSERT_FALSE(read.ok()) << bad.line;
    EXPECT_NE(read.error().message.find("line 2 of 'trace.jsonl'"), std::string::npos);
    EXPECT_NE(read.error().message.find(bad.says), std::string::npos) << read.error().message;
  }
}

TEST(Sim, AGeneratedTraceAndItsFileGiveTheSameReport) {
  const ScratchFolder scratch;
  const std::string file = scratch.File("trace.jsonl");
  const std::string setup =
      " --shape llama-3.1-8b --kv-cache-memory 2GiB --max-model-len 4096 --json ";
  const BinaryResult made = RunBinary("sim --generate agents --requests 40 --save " + file + setup);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const json::object report = json::parse(made.out).as_object();
  EXPECT_EQ(report.at("requests_finished").as_int64(), 40);
  EXPECT_GT(report.at("hit_rate").to_number<double>(), 0.3);
  EXPECT_LE(report.at("hit_rate").to_number<double>(),
            report.at("hit_rate_best").to_number<double>());
  const BinaryResult replayed = RunBinary("sim " + file + setup);
  EXPECT_EQ(replayed.out, made.out) << replayed.err;
}

TEST(Sim, WhatCannotWorkIsOneClearSentence) {
  struct BadRun {
    const char* arguments;
    int exit_code;
    const char* says;
  };
  for (const BadRun& bad :
       {BadRun{"sim --kv-cache-memory 4GiB --max-model-len 4096", 2, "--generate KIND"},
        BadRun{"sim --generate chat", 2, "--kv-cache-memory"},
        BadRun{"sim --generate chat x.jsonl --kv-cache-memory 4GiB --max-model-len 4096", 2,
               "--generate"},
        BadRun{"sim /no/such/trace.jsonl --kv-cache-memory 4GiB --max-model-len 4096", 3,
               "/no/such/trace.jsonl"},
        BadRun{"sim --generate storm", 2, "storm"},
        BadRun{"sim --generate chat --kv-cache-memory 1MiB", 6, "4194304 bytes"},
        BadRun{"sim --generate chat --kv-cache-memory 64MiB --max-model-len 4096", 2, "4096"}}) {
    const BinaryResult result = RunBinary(bad.arguments);
    EXPECT_EQ(result.exit_code, bad.exit_code) << bad.arguments << result.err;
    EXPECT_NE(result.err.find(bad.says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace quire::cli
