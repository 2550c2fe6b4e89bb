// Numbers that do not move: a sequence's logits are the same bits whatever surrounds its
// computation.
#include "model/transformer.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "testing/model_runner.h"

namespace quire::model {
namespace {

using kernels::KvCodec;
using testing::LogitsRows;
using testing::ModelRunner;
using testing::RandomTokens;
using testing::RunnerSequence;

constexpr const char* kModel = "models/draft/draft-q8_0.gguf";

struct Format {
  KvCodec codec;
  int block_size;
};

class FixedNumbers : public ::testing::TestWithParam<Format> {
 protected:
  ModelRunner Runner(int threads) const {
    const kvstore::KvFormat format{GetParam().codec, GetParam().codec, GetParam().block_size};
    return ModelRunner(
        kModel, {.format = format, .threads = threads, .max_sequences = 20, .max_tokens = 400});
  }
};

TEST_P(FixedNumbers, WholePrefillEqualsChunkedBitForBit) {
  ModelRunner runner = Runner(1);
  const std::vector<TokenId> tokens = RandomTokens(150, 1);
  const LogitsRows whole = runner.Run(tokens, 150);
  for (int chunk : {1, 7, 64}) EXPECT_EQ(runner.Run(tokens, chunk), whole) << "chunk " << chunk;
}

TEST_P(FixedNumbers, AloneEqualsInABatchOfSeventeenBitForBit) {
  ModelRunner runner = Runner(1);
  std::vector<RunnerSequence> sequences;
  for (int i = 0; i < 17; ++i) sequences.push_back(runner.Start(RandomTokens(20 + 5 * i, i)));
  runner.RunTogether(sequences, 8);
  for (const RunnerSequence& sequence : sequences) {
    EXPECT_EQ(runner.Run(sequence.tokens, 512), sequence.logits);
  }
}

TEST_P(FixedNumbers, OneThreadEqualsTwoEqualsThreeBitForBit) {
  const std::vector<TokenId> tokens = RandomTokens(130, 2);
  const LogitsRows one = Runner(1).Run(tokens, 100);
  EXPECT_EQ(Runner(2).Run(tokens, 100), one);
  EXPECT_EQ(Runner(3).Run(tokens, 100), one);
}

INSTANTIATE_TEST_SUITE_P(CodecsAndBlockSizes, FixedNumbers,
                         ::testing::Values(Format{KvCodec::kF32, 16}, Format{KvCodec::kF32, 32},
                                           Format{KvCodec::kF32, 64}, Format{KvCodec::kF16, 16},
                                           Format{KvCodec::kF16, 32}, Format{KvCodec::kF16, 64},
                                           Format{KvCodec::kBf16, 16}, Format{KvCodec::kBf16, 32},
                                           Format{KvCodec::kBf16, 64}));

}  // namespace
}  // namespace quire::model
