// The engine's promises: what surrounds a request never changes its answer.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "testing/engine_runner.h"

namespace quire::engine {
namespace {

using kernels::KvCodec;
using sched::Request;
using testing::Generate;
using testing::GenerateOne;
using testing::RandomTokens;

constexpr const char* kModel = "models/draft/draft-q8_0.gguf";

Request MakeRequest(std::vector<TokenId> prompt, int max_tokens, uint64_t seed) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 2;
  return request;
}

bool operator==(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.token == b.token && a.logprob == b.logprob && a.top == b.top;
}

// Tokens, text and the bits of the log probabilities.
void ExpectSame(const Choice& a, const Choice& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) EXPECT_TRUE(a.logprobs[i] == b.logprobs[i]);
}

class EngineTest : public ::testing::TestWithParam<KvCodec> {
 protected:
  std::unique_ptr<Engine> Make(EngineOptions options = {}) {
    options.kv_format.key_codec = GetParam();
    options.kv_format.value_codec = GetParam();
    return testing::MakeEngineOrDie(*model_, options, *team_);
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
std::unique_ptr<base::ThreadTeam> EngineTest::team_;
std::unique_ptr<LoadedModel> EngineTest::model_;

TEST_P(EngineTest, BatchedEqualsAlone) {
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) requests.push_back(MakeRequest(RandomTokens(10 + 17 * i, i), 20, i));
  const auto together = Generate(*Make(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(GenerateOne(*Make(), requests[i]).choices[0], together[i].choices[0]);
  }
}

TEST_P(EngineTest, ChunkedPrefillEqualsWhole) {
  const Request request = MakeRequest(RandomTokens(200, 5), 10, 5);
  EngineOptions small;
  small.max_num_batched_tokens = 7;
  small.max_num_seqs = 4;
  ExpectSame(GenerateOne(*Make(small), request).choices[0],
             GenerateOne(*Make(), request).choices[0]);
}

TEST_P(EngineTest, CacheHitEqualsMissEqualsCacheOff) {
  EngineOptions off;
  off.enable_prefix_caching = false;
  auto engine = Make();
  // Prompts that share prefixes ending on and inside blocks.
  for (int length : {64, 96, 97, 100, 130, 130, 131}) {
    const Request request = MakeRequest(RandomTokens(length, 7), 12, 3);
    std::vector<TokenId> shared = RandomTokens(131, 7);
    shared.resize(length);
    Request same_prefix = request;
    same_prefix.prompt = shared;
    const Completion hit = GenerateOne(*engine, same_prefix);
    const Completion miss = GenerateOne(*Make(off), same_prefix);
    ExpectSame(hit.choices[0], miss.choices[0]);
    EXPECT_EQ(miss.usage.cached_tokens, 0);
  }
  EXPECT_GT(engine->scheduler().stats().prompt_tokens_hit, 0);
}

TEST_P(EngineTest, SecondIdenticalPromptComputesLessThanABlock) {
  auto engine = Make();
  const Request request = MakeRequest(RandomTokens(150, 11), 3, 3);
  EXPECT_EQ(GenerateOne(*engine, request).usage.cached_tokens, 0);
  EXPECT_EQ(GenerateOne(*engine, request).usage.cached_tokens, 128);
  // Once the last block is full and published, all but the token that must be computed.
  Request longer = request;
  longer.sampling.max_tokens = 20;
  GenerateOne(*engine, longer);
  EXPECT_EQ(GenerateOne(*engine, request).usage.cached_tokens, 149);
}

TEST_P(EngineTest, FourTogetherEqualFourAloneWithTheirSeeds) {
  Request request = MakeRequest(RandomTokens(50, 13), 15, 100);
  request.n = 4;
  const Completion together = GenerateOne(*Make(), request);
  ASSERT_EQ(together.choices.size(), 4u);
  EXPECT_NE(together.choices[0].tokens, together.choices[1].tokens);
  for (int i = 0; i < 4; ++i) {
    ExpectSame(GenerateOne(*Make(), MakeRequest(request.prompt, 15, 100 + i)).choices[0],
               together.choices[i]);
  }
}

TEST_P(EngineTest, PreemptedEqualsUndisturbed) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(MakeRequest(RandomTokens(40, 50 + i), 60, i));
  EngineOptions tight;
  tight.max_model_len = 128;
  tight.kv_format.block_size = 16;
  const auto layout = kvstore::KvLayout::Create(model::KvGeometryOf(model_->config()),
                                                {GetParam(), GetParam(), 16});
  tight.kv_cache_memory = 10 * layout->frame_bytes();
  auto engine = Make(tight);
  const auto squeezed = Generate(*engine, requests);
  EXPECT_GT(engine->scheduler().stats().preemptions, 0);
  const auto roomy = Generate(*Make(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(squeezed[i].choices[0], roomy[i].choices[0]);
  }
}

// Everybody loses everything before every step, and still says the same.
TEST_P(EngineTest, PreemptedAtEveryStepEqualsUndisturbed) {
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(MakeRequest(RandomTokens(9 + 21 * i, i), 40, i));
  requests[2].n = 3;
  const auto undisturbed = Generate(*Make(), requests);
  for (const bool caching : {true, false}) {
    EngineOptions options;
    options.enable_prefix_caching = caching;
    options.kv_format.block_size = 16;
    auto engine = Make(options);
    const auto preempted = Generate(*engine, requests, [&] { engine->PreemptAll(); });
    const sched::SchedulerStats stats = engine->scheduler().stats();
    EXPECT_GE(stats.preemptions, stats.steps - 1);
    for (size_t i = 0; i < requests.size(); ++i) {
      for (size_t c = 0; c < undisturbed[i].choices.size(); ++c) {
        ExpectSame(preempted[i].choices[c], undisturbed[i].choices[c]);
      }
    }
    // What is computed again must not pass for prompt tokens found in the cache.
    EXPECT_EQ(stats.prompt_tokens_hit, 0);
    EXPECT_GT(stats.recomputed_tokens, 0);
  }
}

TEST_P(EngineTest, ACommonPrefixIsComputedAndHeldOnce) {
  const std::vector<TokenId> prefix = RandomTokens(512, 99);
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    std::vector<TokenId> prompt = prefix;
    for (const TokenId token : RandomTokens(32, 200 + i)) prompt.push_back(token);
    requests.push_back(MakeRequest(std::move(prompt), 8, i));
  }
  auto engine = Make();
  int leased_max = 0;
  Generate(*engine, requests, [&] {
    leased_max = std::max(leased_max, engine->scheduler().cache().stats().frames_leased);
  });
  const sched::SchedulerStats stats = engine->scheduler().stats();
  EXPECT_EQ(stats.prefill_tokens, 512 + 24 * 32);
  EXPECT_EQ(stats.prompt_tokens_hit, 23 * 512);
  EXPECT_LE(leased_max, 512 / 32 + 24 * 2);
}

TEST_P(EngineTest, PenaltiesAndFiltersDoNotDependOnTheBatch) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request = MakeRequest(RandomTokens(30 + i, 70 + i), 25, i);
    request.sampling.repetition_penalty = 1.1f;
    request.sampling.frequency_penalty = 0.3f;
    request.sampling.presence_penalty = 0.2f;
    request.sampling.top_k = 40 + i;
    request.sampling.top_p = 0.9f;
    request.sampling.min_p = 0.01f;
    requests.push_back(request);
  }
  const auto together = Generate(*Make(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(GenerateOne(*Make(), requests[i]).choices[0], together[i].choices[0]);
  }
}

TEST_P(EngineTest, PromptLogprobsAreTheSameWithAWarmCache) {
  auto engine = Make();
  Request request = MakeRequest(RandomTokens(100, 17), 4, 1);
  request.sampling.prompt_logprobs = 1;
  const Completion cold = GenerateOne(*engine, request);
  const Completion warm = GenerateOne(*engine, request);
  ASSERT_EQ(cold.prompt_logprobs.size(), 100u);
  EXPECT_FALSE(cold.prompt_logprobs[0].has_value());
  ASSERT_EQ(warm.prompt_logprobs.size(), 100u);
  for (size_t i = 1; i < 100; ++i) {
    EXPECT_EQ(cold.prompt_logprobs[i]->token, request.prompt[i]);
    EXPECT_TRUE(*cold.prompt_logprobs[i] == *warm.prompt_logprobs[i]);
  }
}

TEST_P(EngineTest, CancelFreesEverythingAtOnce) {
  auto engine = Make();
  auto first = engine->Submit(MakeRequest(RandomTokens(300, 1), 50, 1));
  auto second = engine->Submit(MakeRequest(RandomTokens(60, 2), 10, 2));
  ASSERT_TRUE(first.ok() && second.ok());
  int finished = 0;
  const UpdateSink sink = [&](const SequenceUpdate& update) {
    EXPECT_EQ(update.request, *second);
    finished += update.finish.has_value();
  };
  ASSERT_TRUE(engine->Step([](const SequenceUpdate&) {}));
  engine->Cancel(*first);
  engine->scheduler().CheckInvariants();
  while (engine->Step(sink)) {
  }
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(engine->scheduler().cache().stats().frames_leased, 0);
}

TEST_P(EngineTest, StopStringEndsTheTextBeforeIt) {
  auto engine = Make();
  Request request = MakeRequest(RandomTokens(20, 23), 40, 4);
  request.sampling.temperature = 0;
  const std::string full = GenerateOne(*engine, request).choices[0].text;
  ASSERT_GT(full.size(), 30u);
  const std::string stop = full.substr(15, 6);
  request.sampling.stop = {stop};
  const Choice stopped = GenerateOne(*engine, request).choices[0];
  EXPECT_EQ(stopped.text, full.substr(0, full.find(stop)));
  EXPECT_EQ(stopped.finish, sched::FinishReason::kStop);
  EXPECT_EQ(std::get<std::string>(stopped.stop_reason), stop);
  EXPECT_EQ(stopped.tokens.size(), stopped.logprobs.size());
  request.sampling.include_stop_in_output = true;
  EXPECT_EQ(GenerateOne(*engine, request).choices[0].text, stopped.text + stop);
}

TEST_P(EngineTest, OneBeamIsGreedyAndFourFindNoWorseText) {
  auto engine = Make();
  const std::vector<TokenId> prompt =
      model_->tokenizer().Encode("The old man went", {.add_special = true});
  // The sum of the log probabilities of `output` after the prompt.
  const auto score = [&](const std::vector<TokenId>& output) {
    Request request = MakeRequest(prompt, 1, 0);
    request.prompt.insert(request.prompt.end(), output.begin(), output.end());
    request.sampling.prompt_logprobs = 0;
    const Completion scored = GenerateOne(*engine, request);
    double sum = 0;
    for (size_t i = prompt.size(); i < request.prompt.size(); ++i) {
      sum += scored.prompt_logprobs[i]->logprob;
    }
    return sum;
  };
  Request request = MakeRequest(prompt, 6, 0);
  request.sampling.temperature = 0;
  const std::vector<TokenId> greedy = GenerateOne(*engine, request).choices[0].tokens;
  request.beam_search.emplace();
  EXPECT_EQ(GenerateOne(*engine, request).choices[0].tokens, greedy);

  request.n = 2;
  request.best_of = 4;
  const Completion beams = GenerateOne(*engine, request);
  ASSERT_EQ(beams.choices.size(), 2u);
  EXPECT_GE(score(beams.choices[0].tokens), score(greedy));
  EXPECT_GT(score(beams.choices[0].tokens), score(beams.choices[1].tokens));
}

TEST_P(EngineTest, TooLongPromptIsRefusedWithTheCounts) {
  auto engine = Make();
  const auto id = engine->Submit(MakeRequest(RandomTokens(2000, 1), 10, 1));
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.error().message.find("2000"), std::string::npos) << id.error().message;
  EXPECT_NE(id.error().message.find("1024"), std::string::npos) << id.error().message;
}

TEST_P(EngineTest, TokenOutsideTheVocabularyIsRefused) {
  auto engine = Make();
  EXPECT_FALSE(engine->Submit(MakeRequest({5, 4096}, 10, 1)).ok());
  EXPECT_FALSE(engine->Submit(MakeRequest({-1}, 10, 1)).ok());
  EXPECT_FALSE(engine->Submit(MakeRequest({}, 10, 1)).ok());
}

INSTANTIATE_TEST_SUITE_P(Codecs, EngineTest,
                         ::testing::Values(KvCodec::kF32, KvCodec::kF16, KvCodec::kBf16));

}  // namespace
}  // namespace quire::engine
