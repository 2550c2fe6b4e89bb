// The forward pass against logits that an independent engine computed in f32.
#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "testing/model_runner.h"
#include "testing/shared_data.h"

namespace quire::model {
namespace {

using kernels::KvCodec;
using testing::LogitsRows;
using testing::ModelRunner;

std::vector<std::vector<TokenId>> ReadTokenLists(const std::string& path) {
  std::vector<std::vector<TokenId>> lists;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    lists.emplace_back(std::istream_iterator<TokenId>(words), std::istream_iterator<TokenId>());
  }
  return lists;
}

std::vector<float> ReadFloats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), floats.size() * sizeof(float), reinterpret_cast<char*>(floats.data()));
  return floats;
}

// |a - b| / |b| over all positions of all sequences.
double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

class GoldenLogits : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenLogits, MatchAnIndependentEngine) {
  const std::string name = GetParam();
  QUIRE_SHARED_DATA_OR_SKIP(model, "golden/" + name + ".gguf");
  QUIRE_SHARED_DATA_OR_SKIP(logits, "golden/" + name + ".logits.bin");
  QUIRE_SHARED_DATA_OR_SKIP(tokens, "golden/tokens.txt");
  const std::vector<float> expected = ReadFloats(logits);

  struct Case {
    KvCodec codec;
    double tolerance;
  };
  for (const Case& expectation : {Case{KvCodec::kF32, 1e-4}, Case{KvCodec::kF16, 5e-3}}) {
    testing::ModelRunnerOptions options;
    options.format.key_codec = options.format.value_codec = expectation.codec;
    ModelRunner runner(model, options);
    std::vector<float> actual;
    for (const auto& list : ReadTokenLists(tokens)) {
      for (const auto& row : runner.Run(list, 64)) {
        actual.insert(actual.end(), row.begin(), row.end());
      }
    }
    ASSERT_EQ(actual.size(), expected.size());
    const double error = RelativeError(actual, expected);
    EXPECT_LE(error, expectation.tolerance);
    RecordProperty(expectation.codec == KvCodec::kF32 ? "f32" : "f16", std::to_string(error));
    std::printf("%s %s: relative error %.2e\n", name.c_str(),
                expectation.codec == KvCodec::kF32 ? "f32" : "f16", error);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenLogits,
                         ::testing::Values("llama-mha", "llama-gqa", "llama-mqa", "llama-hd80",
                                           "qwen2", "qwen3", "phi3", "gemma2"),
                         [](const auto& golden) {
                           std::string name = golden.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::model
