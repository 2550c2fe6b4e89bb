// Published vocabularies give the published ids, case by case.
#include <array>
#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/gguf_tokenizer.h"
#include "testing/shared_data.h"
#include "text/tokenizer_files.h"
#include "text/utf8.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::TestWithParam;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// A line break stands between a case and the line that separates it from the next.
std::vector<std::string> ReadCases(const std::string& path) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string content = ReadFile(path);
  std::vector<std::string> cases;
  size_t begin = 0;
  for (size_t at = content.find(kSeparator); at != std::string::npos;
       at = content.find(kSeparator, begin)) {
    cases.push_back(content.substr(begin, at - begin));
    begin = at + kSeparator.size();
  }
  cases.push_back(content.substr(begin));
  return cases;
}

std::vector<std::vector<TokenId>> ReadIds(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::vector<TokenId>> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<TokenId> ids;
    for (TokenId id = 0; words >> id;) ids.push_back(id);
    lines.push_back(std::move(ids));
  }
  return lines;
}

Result<text::Tokenizer> LoadVocabulary(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const model::GgufFile file, model::GgufFile::Open(path));
  return TokenizerFromGguf(file);
}

class PublishedVocabulary : public TestWithParam<std::string> {};

TEST_P(PublishedVocabulary, GivesThePublishedIdsOfEveryCase) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-" + GetParam() + ".gguf");
  const Result<text::Tokenizer> tokenizer = LoadVocabulary(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<std::string> cases = ReadCases(path + ".inp");
  const std::vector<std::vector<TokenId>> expected = ReadIds(path + ".out");
  ASSERT_GT(cases.size(), 40u);
  ASSERT_GE(expected.size(), cases.size() - 1);
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<TokenId> ids = i < expected.size() ? expected[i] : std::vector<TokenId>();
    EXPECT_EQ(tokenizer->Encode(cases[i]), ids) << "case " << i << ": '" << cases[i] << "'";
    EXPECT_EQ(tokenizer->Decode(ids), cases[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedVocabulary,
                         ::testing::Values("llama-spm", "phi-3", "gpt-2", "llama-bpe", "qwen2",
                                           "deepseek-coder", "falcon", "starcoder"),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// --- tokenizer.json ---

TEST(TokenizerJsonOfQwen3, GivesTheIdsOfTheQwen2Vocabulary) {
  QUIRE_SHARED_DATA_OR_SKIP(directory, "tokenizers/qwen3-hf");
  QUIRE_SHARED_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-qwen2.gguf");
  const Result<text::TokenizerFiles> files = text::LoadTokenizerFiles(directory);
  ASSERT_TRUE(files.ok()) << files.error().message;
  const Result<text::Tokenizer> tokenizer = text::Tokenizer::Create(files->spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<std::string> cases = ReadCases(path + ".inp");
  const std::vector<std::vector<TokenId>> expected = ReadIds(path + ".out");
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<TokenId> ids = i < expected.size() ? expected[i] : std::vector<TokenId>();
    EXPECT_EQ(tokenizer->Encode(cases[i]), ids) << "case " << i << ": '" << cases[i] << "'";
  }
  EXPECT_EQ(tokenizer->eos(), tokenizer->FindToken("<|im_end|>"));
  EXPECT_EQ(files->chat_templates.size(), 1u);
  const std::vector<TokenId> ids =
      tokenizer->Encode("<|im_start|><think>", {.parse_special = true});
  EXPECT_THAT(ids, ElementsAre(151644, 151667));
}

// --- The stories model of 512 tokens, in both of its files ---

// tok512.bin: u32 longest token; for each token f32 score, i32 length, the text.
std::vector<std::string> ReadLlama2cTokens(const std::string& path) {
  std::istringstream file(ReadFile(path));
  std::vector<std::string> tokens;
  file.ignore(4);
  for (std::array<char, 4> score; file.read(score.data(), 4);) {
    int32_t length = 0;
    file.read(reinterpret_cast<char*>(&length), 4);
    std::string token(static_cast<size_t>(length), '\0');
    file.read(token.data(), length);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TEST(StoriesTokenizer, ItsGgufHoldsTheTokensOfItsCheckpoint) {
  QUIRE_SHARED_DATA_OR_SKIP(gguf, "models/stories260K.gguf");
  QUIRE_SHARED_DATA_OR_SKIP(bin, "models/tok512.bin");
  const Result<text::Tokenizer> tokenizer = LoadVocabulary(gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<std::string> tokens = ReadLlama2cTokens(bin);
  ASSERT_EQ(tokenizer->vocab_size(), static_cast<int>(tokens.size()));
  for (TokenId id = 259; id < tokenizer->vocab_size(); ++id) {
    EXPECT_EQ(tokenizer->TokenBytes(id), tokens[id]);
  }
  const std::string text = "Once upon a time, there was a little girl named Lily.";
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  EXPECT_THAT(tokenizer->Encode("Once upon a time", {.add_special = true}),
              ElementsAre(1, 403, 407, 261, 378));
}

// --- Long texts ---

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Quadratic work would take minutes; the bound leaves room for sanitizers and busy machines.
constexpr double kSecondsMax = 30;

TEST_P(PublishedVocabulary, AMegabyteOfTextComesBackInLinearTime) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-" + GetParam() + ".gguf");
  QUIRE_SHARED_DATA_OR_SKIP(corpus, "text/wikitext2-test.txt");
  const Result<text::Tokenizer> tokenizer = LoadVocabulary(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text = ReadFile(corpus).substr(0, 1'000'000);
  std::vector<TokenId> ids;
  EXPECT_LT(Seconds([&] { ids = tokenizer->Encode(text); }), kSecondsMax);
  EXPECT_LT(ids.size(), text.size() / 2);
  EXPECT_TRUE(tokenizer->Decode(ids) == text::ToValidUtf8(text));
}

TEST_P(PublishedVocabulary, RunsOfOneCharacterComeBackInLinearTime) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-" + GetParam() + ".gguf");
  const Result<text::Tokenizer> tokenizer = LoadVocabulary(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const char* unit : {"a", " ", "\n", "7", "\u4e2d", "\U0001F600", "="}) {
    std::string run;
    for (int i = 0; i < 100'000; ++i) run += unit;
    std::vector<TokenId> ids;
    EXPECT_LT(Seconds([&] { ids = tokenizer->Encode(run); }), kSecondsMax) << unit;
    EXPECT_TRUE(tokenizer->Decode(ids) == run) << unit;
  }
}

}  // namespace
}  // namespace quire::engine
