#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include "sched/fake_engine.h"

namespace quire::sched {
namespace {

constexpr int kVocabulary = 50;

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.max_model_len = 256;
  return options;
}

kv::KvCacheOptions Cache(int frames) {
  kv::KvCacheOptions options;
  options.frames = frames;
  options.block_tokens = 8;
  return options;
}

std::vector<TokenId> Tokens(int count, uint64_t seed) {
  base::CounterRng rng(seed, 0, 0);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(rng.NextBelow(kVocabulary)));
  return tokens;
}

Request MakeRequest(std::string id, std::vector<TokenId> prompt, int max_tokens) {
  Request request;
  request.id = std::move(id);
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

// The output of `request` by the fake model, computed without a scheduler.
std::vector<TokenId> Expected(const FakeEngine& engine, const Request& request, int index,
                              int max_model_len) {
  std::vector<TokenId> tokens = request.prompt;
  while (static_cast<int>(tokens.size() - request.prompt.size()) < request.sampling.max_tokens &&
         static_cast<int>(tokens.size()) < max_model_len) {
    tokens.push_back(engine.NextToken(tokens, index));
  }
  return {tokens.begin() + static_cast<ptrdiff_t>(request.prompt.size()), tokens.end()};
}

TEST(Scheduler, OneRequestGivesTheModelsTokens) {
  FakeEngine engine(Options(), Cache(40), kVocabulary);
  const Request request = MakeRequest("a", Tokens(100, 1), 20);
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  engine.RunToEnd();
  EXPECT_EQ(engine.results().at("a").outputs[0], Expected(engine, request, 0, 256));
  EXPECT_EQ(engine.scheduler().cache().stats().frames_leased, 0);
}

TEST(Scheduler, PromptsAreComputedInChunksBesideDecodes) {
  FakeEngine engine(Options(), Cache(80), kVocabulary);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("a", Tokens(10, 1), 30)).ok());
  ASSERT_TRUE(engine.Step());
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("b", Tokens(200, 2), 5)).ok());
  ASSERT_TRUE(engine.Step());
  const StepPlan& plan = engine.scheduler().plan();
  ASSERT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(plan.decode_tokens, 1);
  EXPECT_EQ(plan.prefill_tokens, 63);  // the budget less the decode
  EXPECT_EQ(plan.sequences[0].tokens, 1);
  EXPECT_TRUE(plan.sequences[0].samples());
  EXPECT_FALSE(plan.sequences[1].samples());
  EXPECT_EQ(plan.sequences[1].logits_begin, 63);
  engine.RunToEnd();
  EXPECT_EQ(engine.scheduler().stats().preemptions, 0);
  EXPECT_GT(engine.scheduler().stats().steps_mixed, 1);
}

}  // namespace
}  // namespace quire::sched
