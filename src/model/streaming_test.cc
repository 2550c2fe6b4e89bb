// StreamingLLM's positions through the whole forward pass.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "testing/model_runner.h"

namespace quire::model {
namespace {

using testing::ModelRunner;
using testing::RunnerSequence;

// Logits of the last of 200 tokens: four sinks, then a window that `evicted` tokens lie before.
std::vector<float> LogitsBehind(ModelRunner& runner, int evicted) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back(300 + (i * 37) % 3000);
  RunnerSequence sequence = runner.Start(tokens);
  sequence.sinks = 4;
  sequence.evicted = evicted;
  runner.Step({&sequence}, {200});
  runner.Release(sequence);
  return sequence.logits.back();
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(a[i]));
    difference = std::max<double>(difference, std::fabs(a[i] - b[i]));
  }
  return difference / largest;
}

TEST(StreamingPositions, FourMillionIsAsGoodAsFourThousandAndAsNone) {
  testing::ModelRunnerOptions options;
  options.format.key_codec = options.format.value_codec = kernels::KvCodec::kF32;
  options.max_rows = 200;
  options.max_tokens = 256;
  ModelRunner runner("models/draft/draft-q8_0.gguf", options);
  const std::vector<float> near = LogitsBehind(runner, 4'000);
  const std::vector<float> far = LogitsBehind(runner, 4'000'000);
  const std::vector<float> contiguous = LogitsBehind(runner, 0);
  EXPECT_LT(LargestDifference(near, far), 1e-4);
  // As if the tokens before the window had never been.
  EXPECT_LT(LargestDifference(near, contiguous), 1e-4);
  RunnerSequence plain = runner.Start(std::vector<TokenId>(200, 300));
  runner.Step({&plain}, {200});
  runner.Release(plain);
  EXPECT_GT(LargestDifference(near, plain.logits.back()), 1e-2);  // the measure can fail
}

}  // namespace
}  // namespace quire::model
