// Published vocabularies give the published ids, case by case.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/gguf_tokenizer.h"
#include "testing/shared_data.h"

namespace quire::engine {
namespace {

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

}  // namespace
}  // namespace quire::engine
