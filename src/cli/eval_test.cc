// `quire eval` as a person runs it: the numbers agree with `quire logits`, bad input is one
// sentence.
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/eval_flags.h"
#include "cli/run_binary_for_test.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kDraft = "models/draft/draft-q8_0.gguf";
constexpr const char* kProbe = "models/probe/probe-f16.gguf";
constexpr const char* kText = "models/val.txt";

json::value RunJson(const std::string& arguments) {
  const BinaryResult result = RunBinary(arguments + " --json");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.exit_code == 0 ? json::parse(result.out) : json::value();
}

TEST(CodecList, SplitsAtCommasButKeepsKeysAndValuesTogether) {
  EXPECT_THAT(SplitCodecList("f16"), ElementsAre("f16"));
  EXPECT_THAT(SplitCodecList("f16,k=int8,v=int4,int4"),
              ElementsAre("f16", "k=int8,v=int4", "int4"));
  EXPECT_THAT(SplitCodecList("v=a,k=b,k=c,v=d"), ElementsAre("v=a,k=b", "k=c,v=d"));
  EXPECT_THAT(SplitCodecList("k=a,f16,v=b"), ElementsAre("k=a", "f16", "v=b"));
}

TEST(CodecList, NamesCodecsForKeysAndValues) {
  const kvstore::KvFormat base{.block_size = 16};
  const auto both = ParseKvFormat("bf16", base);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->key_codec, kernels::KvCodec::kBf16);
  EXPECT_EQ(both->value_codec, kernels::KvCodec::kBf16);
  EXPECT_EQ(both->block_size, 16);
  const auto apart = ParseKvFormat("v=f32,k=f16", base);
  ASSERT_TRUE(apart.ok());
  EXPECT_EQ(apart->key_codec, kernels::KvCodec::kF16);
  EXPECT_EQ(apart->value_codec, kernels::KvCodec::kF32);
  for (const char* bad : {"", "nine", "k=nine,v=f16", "f16,bf16", "k=f16,k=f16"}) {
    EXPECT_FALSE(ParseKvFormat(bad, base).ok()) << bad;
  }
}

TEST(CodecList, ResidualSinksAndRotationGoToTheCodecsThatHaveAUseForThem) {
  kvstore::KvFormat shared;
  shared.residual_tokens = 64;
  shared.sink_tokens = 2;
  shared.rotation = kvstore::KvRotation::kValues;
  const auto residual = [&](const char* codecs) {
    return ParseKvFormat(codecs, shared)->residual_tokens;
  };
  const auto sinks = [&](const char* codecs) { return ParseKvFormat(codecs, shared)->sink_tokens; };
  EXPECT_EQ(residual("f16"), std::nullopt);
  EXPECT_EQ(residual("int8"), 64);
  EXPECT_EQ(residual("k=f16,v=kivi2"), 64);
  EXPECT_EQ(sinks("int8"), std::nullopt);
  EXPECT_EQ(sinks("k=int8,v=int4"), 2);
  EXPECT_EQ(ParseKvFormat("int4", shared)->rotation, kvstore::KvRotation::kValues);
}

// Logits of every position of the token lists, through `quire logits`: [position][vocabulary].
std::vector<std::vector<float>> LogitsOf(const std::string& token_lists) {
  const ScratchFolder scratch;
  const std::string tokens = scratch.Write("tokens.txt", token_lists);
  const std::string out = scratch.File("logits.bin");
  const BinaryResult result = RunBinary(std::string("logits ") + kDraft + " " + tokens + " " + out +
                                        " --kv-cache-dtype f32");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string bytes = ScratchFolder::Read(out);
  constexpr size_t kVocabulary = 4096;
  std::vector<std::vector<float>> rows(bytes.size() / (kVocabulary * sizeof(float)));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(kVocabulary);
    std::memcpy(rows[i].data(), bytes.data() + i * kVocabulary * 4, kVocabulary * 4);
  }
  return rows;
}

TEST(EvalPerplexity, EqualsWhatTheLogitsOfEachWindowGive) {
  const ScratchFolder scratch;
  const std::string text = ScratchFolder::Read(kText).substr(0, 900);
  const std::string file = scratch.Write("text.txt", text);
  const json::value ids = RunJson(std::string("tokenize -m ") + kDraft + " --file " + file);
  const auto tokens = json::value_to<std::vector<int>>(ids.at("tokens"));

  // Windows of 40 with BOS, 39 tokens of text, side by side.
  std::string lists;
  std::vector<int> targets;
  std::vector<size_t> rows;  // row of the logits that predict targets[i]
  size_t row = 0;
  for (size_t first = 0; first < tokens.size(); first += 39) {
    lists += "1";
    rows.push_back(row++);
    targets.push_back(tokens[first]);
    for (size_t i = first; i < std::min(first + 39, tokens.size()); ++i) {
      lists += " " + std::to_string(tokens[i]);
      if (i > first) targets.push_back(tokens[i]);
      if (i > first) rows.push_back(row - 1);
      ++row;
    }
    lists += "\n";
  }
  const auto logits = LogitsOf(lists);
  ASSERT_EQ(logits.size(), row);
  double nll = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    double sum = 0;
    for (const float logit : logits[rows[i]]) sum += std::exp(double{logit});
    nll += std::log(sum) - logits[rows[i]][targets[i]];
  }
  const json::value result =
      RunJson(std::string("eval perplexity -m ") + kDraft + " " + kText +
              " --max-bytes 900 --context 40 --stride 39 --kv-cache-dtype f16");
  EXPECT_EQ(result.at("scored_tokens").as_int64(), static_cast<int64_t>(targets.size()));
  EXPECT_EQ(result.at("scored_tokens").as_int64(), static_cast<int64_t>(tokens.size()));
  const json::value& f32 = result.at("codecs").at(0);
  EXPECT_EQ(f32.at("kv_cache_dtype"), "f32");
  EXPECT_NEAR(f32.at("perplexity").as_double(), std::exp(nll / static_cast<double>(targets.size())),
              1e-9);
}

TEST(EvalPerplexity, ComparesCodecsInATableJsonAndAPlot) {
  const ScratchFolder scratch;
  const std::string plot = scratch.File("plot.svg");
  const std::string arguments = std::string("eval perplexity -m ") + kDraft + " " + kText +
                                " --max-bytes 2000 --context 64 --kv-cache-dtype f32,f16 "
                                "--kv-cache-dtype k=f32,v=bf16 --plot " +
                                plot;
  const json::value result = RunJson(arguments);
  const json::array& codecs = result.at("codecs").as_array();
  ASSERT_EQ(codecs.size(), 3u);
  EXPECT_EQ(codecs[0].at("kl_mean").as_double(), 0);
  EXPECT_EQ(codecs[0].at("top1_agreement").as_double(), 1);
  EXPECT_EQ(codecs[1].at("kv_cache_dtype"), "f16");
  EXPECT_GT(codecs[1].at("kl_p99").as_double(), codecs[1].at("kl_mean").as_double());
  EXPECT_EQ(codecs[2].at("kv_cache_dtype"), "k=f32,v=bf16");
  EXPECT_EQ(codecs[2].at("bits_per_value").as_double(), 24);
  const std::string svg = ScratchFolder::Read(plot);
  EXPECT_THAT(svg, HasSubstr(">k=f32,v=bf16</text>"));
  EXPECT_TRUE(svg.starts_with("<svg"));

  const BinaryResult table = RunBinary(arguments);
  EXPECT_THAT(table.out, HasSubstr("| k=f32,v=bf16 |"));
  EXPECT_THAT(table.out, HasSubstr("every window begins with BOS"));
  EXPECT_EQ(table.err, "");
}

TEST(EvalPerplexity, ComparesEvictionPoliciesWithTheFullCache) {
  const ScratchFolder scratch;
  const std::string plot = scratch.File("plot.svg");
  const std::string arguments = std::string("eval perplexity -m ") + kDraft + " " + kText +
                                " --max-bytes 1200 --context 128 --kv-cache-dtype f16,int8 "
                                "--kv-eviction none,h2o --kv-eviction streaming --kv-budget "
                                "20,0.5 --kv-sinks 0,4 --plot " +
                                plot;
  const json::value result = RunJson(arguments);
  EXPECT_EQ(result.at("prompt").as_int64(), 64);
  EXPECT_EQ(result.at("stride").as_int64(), 64);
  const json::array& rows = result.at("policies").as_array();
  ASSERT_EQ(rows.size(), 2u * (1 + 2 * 2 * 2));
  EXPECT_EQ(rows[0].at("kv_eviction"), "none");
  EXPECT_EQ(rows[0].at("rise").as_double(), 0);
  EXPECT_EQ(rows[1].at("kv_eviction"), "h2o");
  EXPECT_EQ(rows[1].at("kv_budget"), "20");
  EXPECT_EQ(rows[1].at("kv_sinks").as_int64(), 0);
  EXPECT_NEAR(rows[1].at("tokens_kept").as_double(), 21, 0.1);
  EXPECT_NEAR(rows[4].at("tokens_kept").as_double(), 33, 0.1);
  EXPECT_GT(rows[1].at("perplexity").as_double(), rows[0].at("perplexity").as_double());
  EXPECT_EQ(rows[9].at("kv_cache_dtype"), "int8");
  EXPECT_THAT(ScratchFolder::Read(plot), HasSubstr(">int8, streaming 0.5, sinks 4</text>"));

  const BinaryResult table = RunBinary(arguments);
  EXPECT_THAT(table.out, HasSubstr("| int8  | streaming |    0.5 |     4 |"));
  EXPECT_THAT(table.out, HasSubstr("after prompts of 64; every window begins with BOS"));
  EXPECT_EQ(table.err, "");
}

TEST(EvalStreaming, ComparesSinksWithComputingAfresh) {
  const ScratchFolder scratch;
  const std::string plot = scratch.File("plot.svg");
  const std::string arguments = std::string("eval streaming -m ") + kDraft + " " + kText +
                                " --tokens 1500 --kv-budget 64 --recomputed 50 --plot " + plot;
  const json::value result = RunJson(arguments);
  EXPECT_EQ(result.at("scored_tokens").as_int64(), 1500);
  const json::array& rows = result.at("streams").as_array();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("kv_sinks").as_int64(), 0);
  EXPECT_EQ(rows[1].at("kv_sinks").as_int64(), 4);
  EXPECT_EQ(rows[1].at("tokens_kept").as_double(), 65);
  EXPECT_EQ(rows[2].at("kv_eviction"), "none");
  EXPECT_EQ(rows[2].at("speed_up").as_double(), 1);
  EXPECT_GT(rows[1].at("speed_up").as_double(), 1);
  EXPECT_THAT(ScratchFolder::Read(plot), HasSubstr(">f16, afresh</text>"));

  const BinaryResult table = RunBinary(arguments);
  EXPECT_THAT(table.out, HasSubstr("| f16   | sinks 4 |   65 |"));
  EXPECT_THAT(table.out, HasSubstr("50 of them, evenly spread, each also scored after BOS and 63"));
}

TEST(EvalRecall, ComparesEvictionPoliciesWithTheFullCache) {
  const std::string arguments = std::string("eval recall -m ") + kProbe +
                                " --cases models/probe/cases.jsonl --questions 1 "
                                "--kv-eviction streaming --kv-budget 40";
  const json::value result = RunJson(arguments);
  const json::array& rows = result.at("codecs").as_array();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("kv_eviction"), "none");
  EXPECT_GT(rows[0].at("total").at("accuracy").as_double(), 0.9);
  EXPECT_EQ(rows[1].at("kv_eviction"), "streaming");
  EXPECT_EQ(rows[1].at("kv_budget"), "40");
  EXPECT_EQ(rows[1].at("tokens_kept").as_double(), 41);
  EXPECT_LT(rows[1].at("total").at("accuracy").as_double(), 0.2);
  EXPECT_THAT(RunBinary(arguments).out, HasSubstr("| streaming |     40 |     4 |          41 |"));
}

TEST(EvalRecall, MadeCasesAreKeptAndGiveTheSameAnswersAgain) {
  const ScratchFolder scratch;
  const std::string saved = scratch.File("cases.jsonl");
  const std::string model = std::string("eval recall -m ") + kProbe;
  const json::value made = RunJson(
      model + " --filler " + kText +
      " --length 200 --contexts 4 --facts 6 --words-of models/probe/cases.jsonl --save " + saved);
  const json::value again = RunJson(model + " --cases " + saved);
  EXPECT_EQ(made.at("codecs"), again.at("codecs"));
  EXPECT_EQ(made.at("questions").as_int64(), 24);
  // The model was trained for this: it knows most answers, where chance is 1 in 4096.
  EXPECT_GT(made.at("codecs").at(0).at("total").at("accuracy").as_double(), 0.7);
  const BinaryResult table = RunBinary(model + " --cases " + saved);
  EXPECT_THAT(table.out, HasSubstr("| f16   |     200 |"));
}

TEST(EvalLonggen, TellsHowFarEachCodecGoesAlong) {
  const json::value result = RunJson(std::string("eval longgen -m ") + kDraft + " " + kText +
                                     " --prompts 3 --prompt-len 16 --tokens 40");
  const json::array& codecs = result.at("codecs").as_array();
  ASSERT_EQ(codecs.size(), 2u);
  EXPECT_EQ(codecs[0].at("identical").as_int64(), 3);
  EXPECT_EQ(codecs[0].at("forced_agreement").as_double(), 1);
  EXPECT_EQ(codecs[1].at("equal_tokens").as_array().size(), 3u);
  EXPECT_GT(codecs[1].at("forced_agreement").as_double(), 0.9);
}

struct Bad {
  std::string arguments;
  int exit_code;
  const char* says;
};

TEST(Eval, WhatCannotWorkIsOneClearSentence) {
  const ScratchFolder scratch;
  const std::string empty = scratch.Write("empty.txt", "");
  const std::string brief = scratch.Write("brief.txt", "A few words.");
  const std::string cases = scratch.Write("cases.jsonl", "{\"context\": [1, 2]}\n");
  const std::string perplexity = std::string("eval perplexity -m ") + kDraft + " ";
  const std::string recall = std::string("eval recall -m ") + kProbe + " ";
  const std::string longgen = std::string("eval longgen -m ") + kDraft + " ";
  const std::string streaming = std::string("eval streaming -m ") + kDraft + " ";
  for (const Bad& bad :
       {Bad{perplexity + empty, 4, "is empty"},
        Bad{perplexity + "/no/such", 3, "/no/such"},
        Bad{perplexity + brief, 2, "a window of --context 512 takes 511"},
        Bad{perplexity + kText + " --kv-cache-dtype f16,nine", 2, "'nine' is no KV codec"},
        Bad{perplexity + kText + " --context 5000", 2, "--context is 5000"},
        Bad{perplexity + kText + " --stride 600", 2, "--stride 600"},
        Bad{perplexity + kText + " --kv-eviction h2o,least", 2, "no eviction policy 'least'"},
        Bad{perplexity + kText + " --kv-eviction h2o --kv-budget 0.5,2.5", 2, "'2.5' is no budget"},
        Bad{perplexity + kText + " --kv-eviction h2o --kv-sinks 4,few", 2, "'few' is no number"},
        Bad{perplexity + kText + " --kv-eviction h2o --kv-budget 4", 2, "does not hold the 4"},
        Bad{perplexity + kText + " --kv-eviction h2o --min-context 9", 2, "--prompt says what"},
        Bad{perplexity + kText + " --kv-eviction h2o --prompt 512", 2, "--prompt is 512"},
        Bad{perplexity + kText + " --kv-eviction none --prompt 9", 2, "name a policy"},
        Bad{perplexity + kText + " --kv-eviction h2o --context 1025", 2, "--context is 1025"},
        Bad{streaming + brief, 2, "a budget of 256 holds"},
        Bad{streaming + kText + " --kv-sinks -1", 2, "'-1' is no number"},
        Bad{streaming + kText + " --kv-budget 1024", 2, "beyond the model's context of 1024"},
        Bad{streaming + kText + " --tokens 5 --recomputed 6", 2, "ask for fewer"},
        Bad{recall, 2, "--cases FILE"},
        Bad{recall + "--cases " + cases + " --kv-eviction all", 2, "no eviction policy 'all'"},
        Bad{recall + "--cases " + cases, 4, "line 1 of"},
        Bad{recall + "--cases " + empty, 4, "has no recall cases"},
        Bad{recall + "--filler " + empty, 4, "is empty"},
        Bad{recall + "--filler " + brief, 2, "the filler text has"},
        Bad{recall + "--cases " + cases + " --save x", 2, "need --filler"},
        Bad{longgen + empty, 4, "is empty"},
        Bad{longgen + brief, 2, "a prompt takes 127"},
        Bad{longgen + kText + " --tokens 2000", 2, "2000 more are longer"}}) {
    const BinaryResult result = RunBinary(bad.arguments);
    EXPECT_EQ(result.exit_code, bad.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(bad.says)) << bad.arguments;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(EvalPerplexity, CutsTheTextAtAWholeCharacter) {
  EXPECT_EQ(*FirstBytes("a\xC3\xA4z", 2, ""), "a");
  EXPECT_EQ(*FirstBytes("a\xC3\xA4z", 3, ""), "a\xC3\xA4");
  EXPECT_EQ(*FirstBytes("a\xC3\xA4z", 0, ""), "a\xC3\xA4z");
  EXPECT_EQ(*FirstBytes("abc", 99, ""), "abc");
  EXPECT_FALSE(FirstBytes("", 0, "x").ok());
}

}  // namespace
}  // namespace quire::cli
