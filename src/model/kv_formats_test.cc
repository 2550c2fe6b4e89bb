// Every KV format: a sequence's logits are the same bits however it is cut and batched, and close
// to those with f32 keys and values.
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/transformer.h"
#include "testing/kv_format_cases.h"
#include "testing/model_runner.h"

namespace quire::model {
namespace {

using testing::KvFormatCase;
using testing::LogitsRows;
using testing::ModelRunner;
using testing::RandomTokens;
using testing::RunnerSequence;

constexpr const char* kModel = "models/draft/draft-q8_0.gguf";

ModelRunner Runner(const kvstore::KvFormat& format, int threads) {
  return ModelRunner(
      kModel, {.format = format, .threads = threads, .max_sequences = 12, .max_tokens = 400});
}

class KvFormats : public ::testing::TestWithParam<KvFormatCase> {};

TEST_P(KvFormats, WholePrefillEqualsChunkedBitForBit) {
  ModelRunner runner = Runner(GetParam().format, 1);
  const std::vector<TokenId> tokens = RandomTokens(300, 1);
  const LogitsRows whole = runner.Run(tokens, 300);
  for (int chunk : {1, 37, 128}) EXPECT_EQ(runner.Run(tokens, chunk), whole) << "chunk " << chunk;
}

TEST_P(KvFormats, AloneEqualsInABatchBitForBit) {
  ModelRunner runner = Runner(GetParam().format, 1);
  std::vector<RunnerSequence> sequences;
  for (int i = 0; i < 9; ++i) sequences.push_back(runner.Start(RandomTokens(3 + 24 * i, i)));
  runner.RunTogether(sequences, 21);
  for (const RunnerSequence& sequence : sequences) {
    EXPECT_EQ(runner.Run(sequence.tokens, 512), sequence.logits);
  }
}

TEST_P(KvFormats, OneThreadEqualsThreeBitForBit) {
  const std::vector<TokenId> tokens = RandomTokens(200, 2);
  const LogitsRows one = Runner(GetParam().format, 1).Run(tokens, 100);
  EXPECT_EQ(Runner(GetParam().format, 3).Run(tokens, 100), one);
}

// Whatever the codec, the next tokens it finds likely are those that exact keys and values give:
// a lost scale or a block in the wrong place would be far off.
TEST_P(KvFormats, LogitsStayCloseToThoseOfExactKeysAndValues) {
  const std::vector<TokenId> tokens = RandomTokens(300, 4);
  kvstore::KvFormat exact;
  exact.key_codec = exact.value_codec = kernels::KvCodec::kF32;
  const LogitsRows want = Runner(exact, 1).Run(tokens, 300);
  const LogitsRows got = Runner(GetParam().format, 1).Run(tokens, 300);
  double difference = 0;
  double norm = 0;
  for (size_t row = 0; row < want.size(); ++row) {
    for (size_t i = 0; i < want[row].size(); ++i) {
      difference += std::pow(got[row][i] - want[row][i], 2);
      norm += std::pow(want[row][i], 2);
    }
  }
  // The worst measured is 0.035 (int4 and kivi2); what is lost or misplaced is off by the norm.
  EXPECT_LT(std::sqrt(difference / norm), 0.06);
  EXPECT_GT(difference, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, KvFormats, ::testing::ValuesIn(testing::QuantizedKvFormats()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::model
