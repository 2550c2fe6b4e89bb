// The commands that look at model files, as a user runs them.
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary_for_test.h"
#include "testing/shared_data.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(separator, at)) != std::string::npos;) {
    parts.push_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::string Trim(std::string text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin);
}

TEST(TokenizeCommand, GivesThePublishedIdsAndTheTextBack) {
  QUIRE_SHARED_DATA_OR_SKIP(folder, "tokenizers");
  ScratchFolder scratch;
  for (const std::string vocabulary : {"llama-spm", "gpt-2"}) {
    const std::string model = folder + "/ggml-vocab-" + vocabulary + ".gguf";
    std::vector<std::string> cases =
        SplitAt(ScratchFolder::Read(model + ".inp"), "\n__ggml_vocab_test__\n");
    std::vector<std::string> ids = SplitAt(ScratchFolder::Read(model + ".out"), "\n");
    for (size_t i = 0; i < cases.size() && i < ids.size(); i += 16) {
      const std::string file = scratch.Write("case.txt", cases[i]);
      BinaryResult result = RunBinary("tokenize -m " + model + " --file " + file);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(Trim(result.out), Trim(ids[i])) << vocabulary << ": " << cases[i];
      scratch.Write("ids.txt", result.out);
      BinaryResult back = RunBinary("detokenize -m " + model + " -f " + scratch.File("ids.txt"));
      ASSERT_EQ(back.exit_code, 0) << back.err;
      EXPECT_EQ(back.out, cases[i]) << vocabulary;
    }
  }
}

TEST(TokenizeCommand, SpecialTokensAppearOnlyOnRequest) {
  QUIRE_SHARED_DATA_OR_SKIP(model, "tokenizers/ggml-vocab-llama-spm.gguf");
  auto ids = [&](const std::string& arguments) {
    BinaryResult result = RunBinary("tokenize -m " + model + " " + arguments + " --json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return boost::json::parse(result.out).at("tokens").as_array();
  };
  EXPECT_EQ(ids("'a'").size(), 1u);
  boost::json::array with_bos = ids("'a' --add-special");
  ASSERT_EQ(with_bos.size(), 2u);
  EXPECT_EQ(with_bos[0], 1);
  EXPECT_GT(ids("'</s>'").size(), 1u);
  boost::json::array parsed = ids("'</s>' --parse-special");
  EXPECT_EQ(parsed.back(), 2);
}

TEST(DetokenizeCommand, RefusesWhatIsNoToken) {
  QUIRE_SHARED_DATA_OR_SKIP(model, "tokenizers/ggml-vocab-llama-spm.gguf");
  for (const char* ids : {"1 2 x", "32000", "99999999999999"}) {
    BinaryResult result = RunBinary("detokenize -m " + model + " " + ids);
    EXPECT_EQ(result.exit_code, 4) << ids;
    EXPECT_THAT(result.err, HasSubstr("ids 0 to 31999"));
  }
}

TEST(ModelCommands, AMissingOrForeignFileIsOneClearSentence) {
  ScratchFolder scratch;
  const std::string foreign = scratch.Write("notes.gguf", "these are notes, not a model");
  for (const char* command : {"inspect -m ", "tokenize hello -m ", "detokenize 1 -m "}) {
    BinaryResult missing = RunBinary(std::string(command) + "/nowhere/model.gguf");
    EXPECT_EQ(missing.exit_code, 3) << command;
    EXPECT_EQ(missing.err,
              "quire: there is no model '/nowhere/model.gguf': no such file or folder.\n");
    BinaryResult wrong = RunBinary(command + foreign);
    EXPECT_NE(wrong.exit_code, 0) << command;
    EXPECT_LT(wrong.exit_code, 100) << command;
    EXPECT_THAT(wrong.err, HasSubstr("notes.gguf")) << command;
    EXPECT_EQ(wrong.out, "");
  }
}

TEST(InspectCommand, DescribesAModel) {
  QUIRE_SHARED_DATA_OR_SKIP(model, "models/stories260K.gguf");
  BinaryResult result = RunBinary("inspect --json --tensors " + model);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  boost::json::value report = boost::json::parse(result.out);
  const boost::json::value& config = report.at("config");
  EXPECT_EQ(config.at("architecture"), "llama");
  EXPECT_EQ(config.at("layers"), 5);
  EXPECT_EQ(config.at("kv_heads"), 4);
  // 2 (K and V) * 5 layers * 4 heads * 8 channels * 2 bytes
  EXPECT_EQ(report.at("kv_bytes_per_token").at("f16").to_number<double>(), 640.0);
  EXPECT_EQ(report.at("kv_bytes_per_token").at("f32").to_number<double>(), 1280.0);
  EXPECT_EQ(report.at("tokenizer").at("vocab_size"), 512);
  EXPECT_FALSE(report.at("tensors").as_array().empty());
  BinaryResult text = RunBinary("inspect " + model);
  EXPECT_THAT(text.out, HasSubstr("SentencePiece BPE, 512 tokens"));
  EXPECT_THAT(text.out, Not(HasSubstr("\033")));
}

TEST(InspectCommand, TheBundledModelIsTheDefault) {
  BinaryResult result = RunBinary("inspect --json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  boost::json::value report = boost::json::parse(result.out);
  EXPECT_THAT(std::string(report.at("path").as_string()), HasSubstr("target-q8_0.gguf"));
  EXPECT_TRUE(report.at("tensor_types").as_object().contains("Q8_0"));
  EXPECT_EQ(RunBinary("inspect --json models/draft").exit_code, 0) << "a folder is a model, too";
  BinaryResult ids = RunBinary("tokenize 'Once upon a time'");
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_EQ(RunBinary("detokenize " + Trim(ids.out)).out, "Once upon a time");
}

TEST(InspectCommand, AVocabularyAloneIsDescribedToo) {
  QUIRE_SHARED_DATA_OR_SKIP(model, "tokenizers/ggml-vocab-qwen2.gguf");
  BinaryResult result = RunBinary("inspect " + model);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("byte-level BPE"));
}

TEST(TemplateCommand, GivesTheReferenceText) {
  QUIRE_SHARED_DATA_OR_SKIP(folder, "templates");
  ScratchFolder scratch;
  boost::json::value golden = boost::json::parse(ScratchFolder::Read(folder + "/golden.json"));
  for (const auto& [name, list] : golden.as_object()) {
    const boost::json::value& test_case = list.as_array()[0];
    if (!test_case.as_object().contains("text")) continue;
    scratch.Write("args.json", boost::json::serialize(test_case.at("args")));
    BinaryResult result = RunBinary("template --file '" + folder + "/" + std::string(name) +
                                    ".jinja' --input " + scratch.File("args.json") +
                                    " --now 2026-07-26 --bos-token '<s>' --eos-token '</s>'");
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    EXPECT_EQ(result.out, std::string(test_case.at("text").as_string())) << name;
  }
}

TEST(TemplateCommand, SaysWhatIsWrongWithItsInput) {
  ScratchFolder scratch;
  const std::string file =
      scratch.Write("t.jinja", "{{ messages[0].content }}{{ strftime_now('%Y') }}");
  const std::string good =
      scratch.Write("good.json", R"({"now": "1999-01-02", "messages": [{"content": "x"}]})");
  EXPECT_EQ(RunBinary("template -f " + file + " -i " + good).out, "x1999");
  EXPECT_EQ(RunBinary("template -f " + file + " -i " + good + " --now 2001-02-03").out, "x2001");
  auto error = [&](const std::string& input, const std::string& more) {
    return RunBinary("template -f " + file + " -i " + scratch.Write("bad.json", input) + more);
  };
  EXPECT_EQ(error("{", "").exit_code, 4);
  EXPECT_THAT(error("{}", "").err, HasSubstr("no list `messages`"));
  EXPECT_THAT(error(R"({"messages": []})", " --now tomorrow").err, HasSubstr("2026-07-26"));
  EXPECT_EQ(RunBinary("template -f " + file).exit_code, 2);
  EXPECT_EQ(RunBinary("template -f /nowhere.jinja -i " + good).exit_code, 3);
}

TEST(MakeModelCommand, TheSameSeedGivesTheSameFile) {
  ScratchFolder scratch;
  const std::string sizes =
      " --vocab-size 512 --hidden-size 64 --layers 2 --q-heads 4 --kv-heads 2 --ffn-size 128";
  auto make = [&](const std::string& name, const std::string& more) {
    BinaryResult result = RunBinary("make-model " + scratch.File(name) + sizes + more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ScratchFolder::Read(scratch.File(name));
  };
  std::string first = make("a.gguf", " --seed 5");
  EXPECT_EQ(make("b.gguf", " --seed 5"), first);
  EXPECT_NE(make("c.gguf", " --seed 6"), first);
  BinaryResult inspected = RunBinary("inspect --json " + scratch.File("a.gguf"));
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_EQ(boost::json::parse(inspected.out).at("config").at("layers"), 2);
  BinaryResult again = RunBinary("make-model " + scratch.File("a.gguf") + sizes);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("--force"));
}

TEST(MakeModelCommand, RefusesWhatIsNoShape) {
  ScratchFolder scratch;
  const std::string out = "make-model " + scratch.File("x.gguf");
  EXPECT_EQ(RunBinary(out).exit_code, 2);
  BinaryResult unknown = RunBinary(out + " --shape qwen2.5-0.5");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean qwen2.5-0.5b?"));
  BinaryResult odd = RunBinary(out +
                               " --vocab-size 512 --hidden-size 63 --layers 2 --q-heads 4 "
                               "--ffn-size 128");
  EXPECT_NE(odd.exit_code, 0);
  EXPECT_LT(odd.exit_code, 100) << odd.err;
}

}  // namespace
}  // namespace quire::cli
