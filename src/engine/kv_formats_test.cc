// The engine's promises in every KV format: hits, forks, preemption and batches never change an
// answer.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "testing/engine_runner.h"
#include "testing/kv_format_cases.h"

namespace quire::engine {
namespace {

using sched::Request;
using testing::Generate;
using testing::GenerateOne;
using testing::KvFormatCase;
using testing::RandomTokens;

constexpr const char* kModel = "models/draft/draft-q8_0.gguf";

Request MakeRequest(std::vector<TokenId> prompt, int max_tokens, uint64_t seed) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 1;
  return request;
}

// Tokens and the bits of the log probabilities.
void ExpectSame(const Choice& a, const Choice& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << "token " << i;
  }
}

class EngineKvFormats : public ::testing::TestWithParam<KvFormatCase> {
 protected:
  std::unique_ptr<Engine> Make(EngineOptions options = {}) {
    options.kv_format = GetParam().format;
    options.max_num_seqs = 16;
    return testing::MakeEngineOrDie(*model_, options, *team_);
  }
  kvstore::KvLayout Layout() const {
    return std::move(
               kvstore::KvLayout::Create(model::KvGeometryOf(model_->config()), GetParam().format))
        .value();
  }

  static void SetUpTestSuite() {
    team_ = std::make_unique<base::ThreadTeam>(2);
    model_ = testing::LoadModelOrDie(kModel, *team_);
  }
  static void TearDownTestSuite() {
    model_.reset();
    team_.reset();
  }

  static std::unique_ptr<base::ThreadTeam> team_;
  static std::unique_ptr<LoadedModel> model_;
};
std::unique_ptr<base::ThreadTeam> EngineKvFormats::team_;
std::unique_ptr<LoadedModel> EngineKvFormats::model_;

TEST_P(EngineKvFormats, CacheHitEqualsMissEqualsCacheOff) {
  EngineOptions off;
  off.enable_prefix_caching = false;
  auto engine = Make();
  auto cold = Make(off);
  const std::vector<TokenId> prompt = RandomTokens(300, 7);
  // Prompts that share prefixes ending on and inside blocks and residual groups.
  for (int length : {3, 20, 64, 97, 128, 129, 200, 257, 300, 300}) {
    const Request request = MakeRequest({prompt.begin(), prompt.begin() + length}, 6, 3);
    const Completion hit = GenerateOne(*engine, request);
    const Completion miss = GenerateOne(*cold, request);
    ExpectSame(hit.choices[0], miss.choices[0]);
    EXPECT_EQ(miss.usage.cached_tokens, 0);
  }
  EXPECT_GT(engine->scheduler().stats().prompt_tokens_hit, 300);
}

TEST_P(EngineKvFormats, ForksEqualAloneWithTheirSeeds) {
  for (int length : {2, 50, 120}) {  // of them one ends among the sinks, one crosses a group
    Request request = MakeRequest(RandomTokens(length, 13), 20, 100);
    request.n = 3;
    const Completion together = GenerateOne(*Make(), request);
    ASSERT_EQ(together.choices.size(), 3u);
    for (int i = 0; i < 3; ++i) {
      ExpectSame(GenerateOne(*Make(), MakeRequest(request.prompt, 20, 100 + i)).choices[0],
                 together.choices[i]);
    }
  }
}

// Everybody loses everything before every fourth step, and still says the same.
TEST_P(EngineKvFormats, PreemptedBatchEqualsAlone) {
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(MakeRequest(RandomTokens(5 + 40 * i, i), 24, i));
  requests[2].n = 3;
  EngineOptions options;
  options.max_num_batched_tokens = 50;
  auto engine = Make(options);
  int step = 0;
  const auto preempted = Generate(*engine, requests, [&] {
    if (++step % 4 == 0) engine->PreemptAll();
  });
  EXPECT_GT(engine->scheduler().stats().recomputed_tokens, 0);
  auto alone = Make();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Completion want = GenerateOne(*alone, requests[i]);
    for (size_t c = 0; c < want.choices.size(); ++c) {
      ExpectSame(preempted[i].choices[c], want.choices[c]);
    }
  }
}

// Memory for little more than one of them: they take turns, and all finish.
TEST_P(EngineKvFormats, ScarceMemoryChangesNoAnswer) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(MakeRequest(RandomTokens(60, 50 + i), 100, i));
  requests[1].n = 2;
  EngineOptions tight;
  tight.max_model_len = 160;
  const kvstore::KvLayout layout = Layout();
  kv::KvCacheOptions cache = layout.CacheOptions(1);
  const int least = kv::KvCache::FramesForSequence(cache, 160, 1);
  tight.kv_cache_memory = (least + least / 2) * layout.frame_bytes();
  auto engine = Make(tight);
  const auto squeezed = Generate(*engine, requests);
  EXPECT_GT(engine->scheduler().stats().preemptions, 0);
  auto roomy = Make();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Completion want = GenerateOne(*roomy, requests[i]);
    for (size_t c = 0; c < want.choices.size(); ++c) {
      ExpectSame(squeezed[i].choices[c], want.choices[c]);
    }
  }
}

// Exactly what the control plane says is needed for one sequence is enough for it.
TEST_P(EngineKvFormats, TheLeastMemoryServesTheLongestSequence) {
  EngineOptions options;
  options.max_model_len = 290;
  const kvstore::KvLayout layout = Layout();
  const int frames = kv::KvCache::FramesForSequence(layout.CacheOptions(1), 290, 1);
  options.kv_cache_memory = frames * layout.frame_bytes();
  const Completion answer = GenerateOne(*Make(options), MakeRequest(RandomTokens(250, 8), 40, 1));
  EXPECT_EQ(answer.usage.completion_tokens, 40);
  options.kv_cache_memory = (frames - 1) * layout.frame_bytes();
  options.kv_format = GetParam().format;
  options.max_num_seqs = 16;
  const auto less = Engine::Create(*model_, options, *team_);
  ASSERT_FALSE(less.ok());
  EXPECT_EQ(less.error().kind, ErrorKind::kUsage);
}

// CASES: four bits turned answers into garbage after a few tokens elsewhere. What a codec continues
// with must be about as likely, to exact keys and values, as what they continue with themselves.
class BundledModelKvFormats : public ::testing::TestWithParam<KvFormatCase> {};

TEST_P(BundledModelKvFormats, AQuestionIsContinuedCoherently) {
  base::ThreadTeam team(2);
  const auto model = testing::LoadModelOrDie("models/target/target-q8_0.gguf", team);
  const std::vector<TokenId> prompt =
      model->tokenizer().Encode("Q: What is 2+2?\nA:", {.add_special = true});
  const auto make = [&](const kvstore::KvFormat& format) {
    EngineOptions options;
    options.kv_format = format;
    options.max_model_len = 256;
    options.max_num_seqs = 4;
    return testing::MakeEngineOrDie(*model, options, team);
  };
  const auto exact = make(kvstore::KvFormat{.key_codec = kernels::KvCodec::kF32,
                                            .value_codec = kernels::KvCodec::kF32});
  // Mean log probability of a greedy continuation, as exact keys and values see it.
  const auto likelihood = [&](Engine& engine) {
    Request greedy = MakeRequest(prompt, 120, 1);
    greedy.sampling.temperature = 0;
    const std::vector<TokenId> tokens = GenerateOne(engine, greedy).choices[0].tokens;
    Request scored = MakeRequest(prompt, 1, 1);
    scored.prompt.insert(scored.prompt.end(), tokens.begin(), tokens.end());
    scored.sampling.prompt_logprobs = 0;
    const Completion score = GenerateOne(*exact, scored);
    double sum = 0;
    for (size_t i = prompt.size(); i < scored.prompt.size(); ++i) {
      sum += score.prompt_logprobs[i]->logprob;
    }
    return sum / static_cast<double>(tokens.size());
  };
  const double own = likelihood(*exact);
  EXPECT_GT(own, -2.0);
  EXPECT_GT(likelihood(*make(GetParam().format)), own - 0.5);
}

INSTANTIATE_TEST_SUITE_P(Formats, BundledModelKvFormats,
                         ::testing::ValuesIn(testing::QuantizedKvFormats()),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Formats, EngineKvFormats,
                         ::testing::ValuesIn(testing::QuantizedKvFormats()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::engine
