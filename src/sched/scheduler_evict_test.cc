// The scheduler and sequences that keep only some of their tokens.
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

Request MakeRequest(std::string id, int prompt_tokens, int max_tokens) {
  base::CounterRng rng(std::hash<std::string>()(id), 0, 0);
  Request request;
  request.id = std::move(id);
  for (int i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<TokenId>(rng.NextBelow(kVocabulary)));
  }
  request.sampling.max_tokens = max_tokens;
  request.eviction.policy = kv::EvictionPolicy::kH2o;
  request.eviction.budget_tokens = 32;
  return request;
}

// Frames leased after every step until the engine has nothing to do.
std::vector<int> LeasedFrames(FakeEngine& engine) {
  std::vector<int> frames;
  while (engine.Step()) {
    engine.scheduler().CheckInvariants();
    frames.push_back(engine.scheduler().cache().stats().frames_leased);
  }
  return frames;
}

TEST(SchedulerWithEviction, MemoryIsTheBudgetFromTheEndOfThePromptOn) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("a", 200, 40)).ok());
  const std::vector<int> frames = LeasedFrames(engine);
  ASSERT_EQ(frames.size(), 43u);  // four chunks, of which the last gives a token
  EXPECT_EQ(frames[2], 24);
  for (size_t step = 3; step + 1 < frames.size(); ++step) EXPECT_EQ(frames[step], 4) << step;
  EXPECT_EQ(engine.scheduler().stats().evicted_tokens, 200 + 38 - 32);  // not in the last
}

TEST(SchedulerWithEviction, APromptWithinTheBudgetEvictsWhenItsAnswerHasGrown) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("a", 20, 40)).ok());
  const std::vector<int> frames = LeasedFrames(engine);
  EXPECT_EQ(*std::ranges::max_element(frames), 4);
  EXPECT_EQ(engine.scheduler().stats().evictions, 20 + 38 - 32);
}

TEST(SchedulerWithEviction, WithATailWholeGroupsAreGivenUp) {
  kv::KvCacheOptions cache = Cache(60);
  cache.residual_tokens = 16;
  cache.groups = {{.window_tokens = std::nullopt, .tail_frames = 2}};
  FakeEngine engine(Options(), cache, kVocabulary);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("a", 20, 60)).ok());
  const std::vector<int> frames = LeasedFrames(engine);
  // 32 tokens in four frames, and a tail of two blocks of two frames each.
  EXPECT_EQ(*std::ranges::max_element(frames), 8);
  EXPECT_EQ(engine.scheduler().stats().evictions, (20 + 59 - 32) / 16);
  EXPECT_EQ(engine.scheduler().stats().evicted_tokens, (20 + 59 - 32) / 16 * 16);
}

TEST(SchedulerWithEviction, WhatWasSharedStaysCachedWholeForOthers) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  Request request = MakeRequest("a", 100, 20);
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  engine.RunToEnd();
  request.id = "b";
  request.eviction = {};
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  engine.RunToEnd();
  EXPECT_EQ(engine.results().at("b").cached_tokens, 96);  // its whole blocks
  EXPECT_TRUE(engine.results().at("a") == engine.results().at("b"));
}

TEST(SchedulerWithEviction, QueriesThatScoreAreComputedAndNotFound) {
  const auto cached = [](kv::EvictionPolicy policy) {
    FakeEngine engine(Options(), Cache(60), kVocabulary);
    Request request = MakeRequest("a", 100, 4);
    request.eviction = {};
    EXPECT_TRUE(engine.scheduler().Submit(request).ok());
    engine.RunToEnd();
    request.id = "b";
    request.eviction.policy = policy;
    request.eviction.budget_tokens = 40;
    request.eviction.observed = 20;
    EXPECT_TRUE(engine.scheduler().Submit(request).ok());
    engine.RunToEnd();
    return engine.results().at("b").cached_tokens;
  };
  EXPECT_EQ(cached(kv::EvictionPolicy::kStreaming), 96);
  EXPECT_EQ(cached(kv::EvictionPolicy::kTova), 96);
  EXPECT_EQ(cached(kv::EvictionPolicy::kSnapKv), 80);
  EXPECT_EQ(cached(kv::EvictionPolicy::kH2o), 0);
}

TEST(SchedulerWithEviction, NobodyPreemptsWhatCannotBeComputedAgain) {
  FakeEngine engine(Options(), Cache(40), kVocabulary);
  Request evicting = MakeRequest("evicting", 100, 100);
  evicting.priority = 1;
  ASSERT_TRUE(engine.scheduler().Submit(evicting).ok());
  for (int step = 0; step < 4; ++step) engine.Step();
  Request urgent = MakeRequest("urgent", 200, 56);
  urgent.eviction = {};
  ASSERT_TRUE(engine.scheduler().Submit(urgent).ok());
  engine.scheduler().PreemptAll();
  LeasedFrames(engine);
  EXPECT_EQ(engine.scheduler().stats().preemptions, 0);
  EXPECT_EQ(engine.results().at("evicting").outputs[0].size(), 100u);
  EXPECT_EQ(engine.results().at("urgent").outputs[0].size(), 56u);
}

TEST(SchedulerWithEviction, SiblingsKeepTheirOwn) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  Request request = MakeRequest("a", 100, 20);
  request.n = 4;
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  const std::vector<int> frames = LeasedFrames(engine);
  EXPECT_EQ(frames[frames.size() - 2], 4 * 4);
}

TEST(SchedulerWithEviction, StreamingGoesOnBeyondTheModelsLength) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  Request request = MakeRequest("a", 100, 2000);
  request.eviction.policy = kv::EvictionPolicy::kStreaming;
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  request.id = "b";
  request.eviction.policy = kv::EvictionPolicy::kH2o;
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  engine.RunToEnd();
  EXPECT_EQ(engine.results().at("a").outputs[0].size(), 2000u);
  EXPECT_EQ(engine.results().at("b").outputs[0].size(), 156u);
}

TEST(SchedulerWithEviction, ABudgetServesThreeTimesAsMany) {
  const auto most = [](bool evicts) {
    SchedulerOptions options = Options();
    options.max_num_seqs = 64;
    options.max_model_len = 612;
    options.max_num_batched_tokens = 256;
    FakeEngine engine(options, Cache(8 * 77), kVocabulary);
    for (int i = 0; i < 40; ++i) {
      Request request = MakeRequest(std::to_string(i), 512, 100);
      request.eviction.budget_tokens = 128;  // as 512 of 2,048
      if (!evicts) request.eviction = {};
      EXPECT_TRUE(engine.scheduler().Submit(request).ok());
    }
    size_t running = 0;
    while (engine.Step()) running = std::max(running, engine.scheduler().running().size());
    return running;
  };
  EXPECT_GE(most(true), 3 * most(false));
}

TEST(SchedulerWithEviction, WhatCannotWorkIsRefused) {
  FakeEngine engine(Options(), Cache(34), kVocabulary);
  const auto refused = [&](auto change) {
    Request request = MakeRequest("a", 100, 10);
    change(request);
    const auto id = engine.scheduler().Submit(std::move(request));
    return id.ok() ? std::string() : id.error().message;
  };
  EXPECT_EQ(refused([](Request&) {}), "");
  EXPECT_NE(refused([](Request& r) { r.beam_search.emplace(); }).find("beam"), std::string::npos);
  EXPECT_NE(refused([](Request& r) { r.eviction.budget_tokens = 300; }).find("max_model_len"),
            std::string::npos);
  EXPECT_NE(refused([](Request& r) {
              r.eviction.budget_tokens = 200;
              r.sampling.max_tokens = 130;
            }).find("KV frames"),
            std::string::npos);
  // Who never reaches the budget needs no room for it.
  EXPECT_EQ(refused([](Request& r) { r.eviction.budget_tokens = 109; }), "");
  EXPECT_NE(refused([](Request& r) { r.eviction.sinks = -1; }).find("sinks"), std::string::npos);
  // A server's default is refused at its start, a share of unknown prompts too.
  kv::EvictionOptions share;
  share.policy = kv::EvictionPolicy::kH2o;
  EXPECT_TRUE(Scheduler::ValidateEviction(share, Options(), Cache(34)).ok());
  share.sinks = 100000;
  EXPECT_FALSE(Scheduler::ValidateEviction(share, Options(), Cache(34)).ok());
  kv::KvCacheOptions windows = Cache(60);
  windows.groups = {{}, {.window_tokens = 40, .tail_frames = 0, .blocks = kv::GroupBlocks::kAll}};
  FakeEngine windowed(Options(), windows, kVocabulary);
  const auto id = windowed.scheduler().Submit(MakeRequest("a", 100, 10));
  ASSERT_FALSE(id.ok());
  EXPECT_NE(id.error().message.find("sliding windows"), std::string::npos);
}

}  // namespace
}  // namespace quire::sched
