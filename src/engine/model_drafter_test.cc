// The draft model follows its sequences through everything that happens to them.
#include "engine/model_drafter.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "model/random_model.h"
#include "testing/engine_runner.h"

namespace quire::engine {
namespace {

using sched::Request;
using testing::Generate;
using testing::RandomTokens;

constexpr const char* kModel = "models/draft/draft-q8_0.gguf";

class ModelDrafterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    team_ = std::make_unique<base::ThreadTeam>(2);
    model_ = testing::LoadModelOrDie(kModel, *team_);
  }
  static void TearDownTestSuite() {
    model_.reset();
    team_.reset();
  }

  static Request MakeRequest(int prompt_tokens, int max_tokens, uint64_t seed) {
    Request request;
    request.prompt = RandomTokens(prompt_tokens, seed);
    request.sampling.max_tokens = max_tokens;
    request.sampling.seed = seed;
    request.sampling.ignore_eos = true;
    return request;
  }

  // The model drafts for itself.
  static std::unique_ptr<Engine> Make(EngineOptions options, ModelDrafter::Options drafting) {
    options.speculation.tokens = 5;
    auto engine = testing::MakeEngineOrDie(*model_, options, *team_);
    drafting.max_num_seqs = options.max_num_seqs;
    drafting.rows = options.max_num_batched_tokens;
    drafting.max_model_len = engine->max_model_len();
    auto drafter = ModelDrafter::Create(*model_, *model_, drafting, *team_);
    QUIRE_CHECK(drafter.ok());
    engine->AddDrafter(std::move(drafter).value());
    return engine;
  }

  static std::unique_ptr<base::ThreadTeam> team_;
  static std::unique_ptr<LoadedModel> model_;
};
std::unique_ptr<base::ThreadTeam> ModelDrafterTest::team_;
std::unique_ptr<LoadedModel> ModelDrafterTest::model_;

void ExpectSameTokens(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t c = 0; c < a[i].choices.size(); ++c) {
      EXPECT_EQ(a[i].choices[c].tokens, b[i].choices[c].tokens) << "request " << i;
    }
  }
}

// Numbers do not depend on the batch: a model that drafts for itself is always right, unless its
// keys and values are not those of its sequence.
TEST_F(ModelDrafterTest, AModelThatDraftsForItselfIsAlwaysRight) {
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    requests.push_back(MakeRequest(1 + 37 * i, 20 + 5 * i, i));
    if (i % 3 == 0) requests.back().n = 2;
  }
  const auto plain = Generate(*testing::MakeEngineOrDie(*model_, {}, *team_), requests);
  for (const int batched : {64, 512}) {
    EngineOptions options;
    options.max_num_batched_tokens = batched;
    options.max_num_seqs = 16;
    auto engine = Make(options, {.kv_tokens = 8192, .choice = DraftChoice::kDrawn});
    int step = 0;
    ExpectSameTokens(Generate(*engine, requests,
                              [&] {
                                if (++step % 9 == 0) engine->PreemptAll();
                              }),
                     plain);
    const SpeculationStats& stats = engine->speculation();
    EXPECT_GT(stats.accepted_tokens, 150);
    EXPECT_EQ(stats.accepted_tokens, stats.draft_tokens);
  }
}

// Half of the sequences sample, and their drafts of likeliest tokens are mostly wrong; the greedy
// ones' are right all the same.
TEST_F(ModelDrafterTest, WhatIsRejectedLeavesNoTrace) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest(20 + 9 * i, 60, i));
    if (i % 2 == 0) requests.back().sampling.temperature = 0;
  }
  const auto plain = Generate(*testing::MakeEngineOrDie(*model_, {}, *team_), requests);
  auto engine = Make({}, {.kv_tokens = 8192, .choice = DraftChoice::kBest});
  const auto drafted = Generate(*engine, requests);
  ExpectSameTokens(drafted, plain);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Usage& usage = drafted[i].usage;
    if (i % 2 == 0) {
      EXPECT_EQ(usage.rejected_draft_tokens, 0);
      EXPECT_GE(usage.accepted_draft_tokens, 45);  // of 60 tokens one in six is drawn beyond
    } else {
      EXPECT_GT(usage.rejected_draft_tokens, 20);
    }
  }
}

// Memory for three of eight sequences: they take turns, and what they say stays.
TEST_F(ModelDrafterTest, ShortOfMemoryItForgetsWhoDraftedLeastRecently) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest(60, 40, i));
    requests.back().sampling.temperature = 0;
  }
  EngineOptions options;
  options.max_model_len = 128;
  const auto plain = Generate(*testing::MakeEngineOrDie(*model_, {}, *team_), requests);
  auto engine = Make(options, {.kv_tokens = 3 * 128, .prefix_caching = kv::PrefixCaching::kOff});
  ExpectSameTokens(Generate(*engine, requests), plain);
  EXPECT_GT(engine->speculation().accepted_tokens, 100);
  EXPECT_EQ(engine->speculation().accepted_tokens, engine->speculation().draft_tokens);
}

TEST_F(ModelDrafterTest, TheBundledDraftHelpsTheBundledTarget) {
  const auto target = testing::LoadModelOrDie("models/target/target-q8_0.gguf", *team_);
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    Request request = MakeRequest(1, 80, i);
    request.prompt = target->tokenizer().Encode("It was a dark night, and the old man said",
                                                {.add_special = true});
    request.sampling.temperature = i < 2 ? 0.0f : 0.7f;
    requests.push_back(request);
  }
  const auto plain = Generate(*testing::MakeEngineOrDie(*target, {}, *team_), requests);
  EngineOptions options;
  options.speculation.draft_model = model_.get();
  options.speculation.tokens = 4;
  auto engine = testing::MakeEngineOrDie(*target, options, *team_);
  ExpectSameTokens(Generate(*engine, requests), plain);
  EXPECT_GT(engine->speculation().accepted_tokens, engine->speculation().drafts);
}

TEST_F(ModelDrafterTest, AnotherTokenizerIsRefusedWithTheFirstDifference) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("quire_other_{}.gguf", ::getpid());
  // As many tokens, and fewer.
  for (const auto& [vocab_size, difference] :
       {std::pair(4096, "token 259 is"), std::pair(1000, "vocabulary has 1000 tokens")}) {
    const model::ShapeSizes sizes{.name = "other",
                                  .vocab_size = vocab_size,
                                  .hidden_size = 64,
                                  .layers = 1,
                                  .q_heads = 2,
                                  .ffn_size = 64};
    ASSERT_TRUE(
        model::WriteRandomModel({.sizes = sizes}, path.string(), *team_, [](double) {}).ok());
    const auto other = testing::LoadModelOrDie(path.string(), *team_);
    std::filesystem::remove(path);
    EngineOptions options;
    options.speculation.draft_model = other.get();
    const auto engine = Engine::Create(*model_, options, *team_);
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find(difference), std::string::npos) << engine.error().message;
    EXPECT_NE(engine.error().message.find("needs the same tokenizer"), std::string::npos);
    EXPECT_EQ(engine.error().param, "draft-model");
  }
}

}  // namespace
}  // namespace quire::engine
