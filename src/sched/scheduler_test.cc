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

TEST(Scheduler, WhoSitsOutKeepsItsMemoryAndLosesNothing) {
  FakeEngine engine(Options(), Cache(80), kVocabulary);
  const Request a = MakeRequest("a", Tokens(10, 1), 30);
  const Request b = MakeRequest("b", Tokens(12, 2), 30);
  ASSERT_TRUE(engine.scheduler().Submit(a).ok() && engine.scheduler().Submit(b).ok());
  ASSERT_TRUE(engine.Step());
  const SequenceId first = engine.scheduler().running()[0];
  const int computed = engine.scheduler().sequence(first).computed();
  for (int step = 0; step < 5; ++step) {
    engine.SitOut({first});
    ASSERT_TRUE(engine.Step());
    EXPECT_EQ(engine.scheduler().plan().sequences.size(), 1u);
  }
  EXPECT_EQ(engine.scheduler().sequence(first).computed(), computed);
  engine.RunToEnd();
  EXPECT_EQ(engine.results().at("a").outputs[0], Expected(engine, a, 0, 256));
  EXPECT_EQ(engine.results().at("b").outputs[0], Expected(engine, b, 0, 256));
  EXPECT_EQ(engine.scheduler().stats().preemptions, 0);
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

std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Scheduler, CachedPromptTokensAreReportedUpToTheDivergence) {
  FakeEngine engine(Options(), Cache(40), kVocabulary);
  const auto history = Tokens(50, 1);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("a", Join(history, Tokens(30, 2)), 4)).ok());
  engine.RunToEnd();
  // The same conversation with what came after token 50 dropped and rewritten.
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("b", Join(history, Tokens(30, 3)), 4)).ok());
  engine.RunToEnd();
  EXPECT_EQ(engine.results().at("a").cached_tokens, 0);
  EXPECT_GE(engine.results().at("b").cached_tokens, 50);  // a token more may agree by chance
  EXPECT_LE(engine.results().at("b").cached_tokens, 54);
  EXPECT_EQ(engine.scheduler().stats().prompt_tokens_hit, engine.results().at("b").cached_tokens);
}

TEST(Scheduler, ASharedPrefixIsComputedOnceAndHeldOnce) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 2048;
  options.max_model_len = 2048;
  kv::KvCacheOptions cache = Cache(2400);
  cache.block_tokens = 32;
  const auto prefix = Tokens(1024, 1);
  const auto run = [&](kv::PrefixCaching caching) {
    cache.prefix_caching = caching;
    auto engine = std::make_unique<FakeEngine>(options, cache, kVocabulary);
    for (int i = 0; i < 64; ++i) {
      QUIRE_CHECK(engine->scheduler()
                      .Submit(MakeRequest(std::to_string(i), Join(prefix, Tokens(32, 100 + i)), 8))
                      .ok());
    }
    while (engine->Step()) {
      const kv::KvStats stats = engine->scheduler().cache().stats();
      if (caching == kv::PrefixCaching::kOn) {
        QUIRE_CHECK_LE(stats.frames_leased, 32 + 64 * 2);
      }
    }
    return engine;
  };
  const auto with = run(kv::PrefixCaching::kOn);
  const auto without = run(kv::PrefixCaching::kOff);
  // Questions may begin alike by chance: then even less is computed.
  EXPECT_LE(with->scheduler().stats().prefill_tokens, 1024 + 64 * 32);
  EXPECT_GT(with->scheduler().stats().prefill_tokens, 1024 + 64 * 31);
  EXPECT_EQ(without->scheduler().stats().prefill_tokens, 64 * (1024 + 32));
  EXPECT_EQ(with->scheduler().stats().prefix_waits, 63);
  EXPECT_EQ(with->results(), without->results());
}

TEST(Scheduler, PromptLogprobsBypassTheCacheAndCoverEveryPromptToken) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  const auto prompt = Tokens(100, 1);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("warm", prompt, 4)).ok());
  engine.RunToEnd();
  Request request = MakeRequest("cold", prompt, 4);
  request.sampling.prompt_logprobs = 0;
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  int rows = 0;
  while (engine.Step()) {
    for (const ScheduledSequence& run : engine.scheduler().plan().sequences) {
      if (run.first_position < 100) rows += run.tokens - run.logits_begin;
    }
  }
  EXPECT_EQ(rows, 100);
  EXPECT_EQ(engine.results().at("cold").cached_tokens, 0);
  EXPECT_EQ(engine.results().at("cold"), engine.results().at("warm"));
}

TEST(Scheduler, SiblingsSharePromptAndDifferAndEqualFourAlone) {
  FakeEngine engine(Options(), Cache(40), kVocabulary);
  Request request = MakeRequest("n", Tokens(60, 1), 12);
  request.n = 4;
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  ASSERT_TRUE(engine.Step());
  EXPECT_EQ(engine.scheduler().plan().samplers.size(), 4u);
  EXPECT_EQ(engine.scheduler().cache().stats().frames_leased, 8);  // one prompt's
  engine.RunToEnd();
  const FakeResult& result = engine.results().at("n");
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(result.outputs[i], Expected(engine, request, i, 256));
    for (int j = 0; j < i; ++j) EXPECT_NE(result.outputs[i], result.outputs[j]);
  }
  EXPECT_EQ(engine.scheduler().stats().prefill_tokens, 60);
  EXPECT_EQ(engine.scheduler().cache().stats().forks, 3);
}

TEST(Scheduler, CancelledInAnyPhaseFreesEverythingByTheEndOfTheStep) {
  for (int steps = 0; steps < 12; ++steps) {
    for (bool during_step : {false, true}) {
      FakeEngine engine(Options(), Cache(60), kVocabulary);
      Request request = MakeRequest("a", Tokens(200, 1), 20);
      request.n = 3;
      const RequestId id = *engine.scheduler().Submit(request);
      for (int i = 0; i < steps; ++i) ASSERT_TRUE(engine.Step());
      if (during_step) {
        ASSERT_TRUE(engine.Step([&] {
          const int leased = engine.scheduler().cache().stats().frames_leased;
          engine.scheduler().Cancel(id);
          // The running step still refers to them.
          EXPECT_EQ(engine.scheduler().cache().stats().frames_leased, leased);
        }));
      } else {
        engine.scheduler().Cancel(id);
      }
      EXPECT_EQ(engine.scheduler().cache().stats().frames_leased, 0);
      EXPECT_TRUE(engine.scheduler().idle());
      engine.scheduler().CheckInvariants();
      EXPECT_FALSE(engine.Step());
      for (FinishReason reason : engine.results().at("a").reasons) {
        EXPECT_EQ(reason, FinishReason::kCancelled);
      }
    }
  }
}

TEST(Scheduler, WhenMemoryRunsOutTheNewestIsPreemptedAndResumesBeforeItsEquals) {
  SchedulerOptions options = Options();
  FakeEngine engine(options, Cache(32), kVocabulary);
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(MakeRequest(std::to_string(i), Tokens(60, 10 + i), 100));
    ASSERT_TRUE(engine.scheduler().Submit(requests.back()).ok());
  }
  std::vector<SequenceId> preempted;
  while (preempted.empty()) {
    ASSERT_TRUE(engine.Step());
    preempted = engine.scheduler().plan().preempted;
  }
  const Scheduler& scheduler = engine.scheduler();
  ASSERT_EQ(preempted.size(), 1u);
  EXPECT_EQ(scheduler.request(scheduler.sequence(preempted[0]).request).request.id, "2");
  // A newcomer with a fully cached prompt does not pass it.
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("late", requests[0].prompt, 5)).ok());
  std::vector<std::string> admitted;
  while (engine.Step()) {
    for (SequenceId id : scheduler.plan().admitted) {
      admitted.push_back(scheduler.request(scheduler.sequence(id).request).request.id);
    }
  }
  const auto late = std::ranges::find(admitted, "late");
  ASSERT_NE(late, admitted.end());
  EXPECT_NE(std::find(admitted.begin(), late, "2"), late);
  EXPECT_GT(scheduler.stats().recomputed_tokens, 0);
  // What the preempted one finds of its own is no hit.
  int hits = 0;
  for (const auto& [id, result] : engine.results()) hits += result.cached_tokens;
  EXPECT_EQ(scheduler.stats().prompt_tokens_hit, hits);
  EXPECT_EQ(scheduler.stats().prompt_tokens_queried, 4 * 60);
  for (const Request& request : requests) {
    EXPECT_EQ(engine.results().at(request.id).outputs[0], Expected(engine, request, 0, 256));
  }
}

TEST(Scheduler, WithRoomForOneSequenceAllRequestsStillFinishWithTheSameTokens) {
  SchedulerOptions options = Options();
  options.max_model_len = 128;
  FakeEngine engine(options, Cache(16), kVocabulary);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    Request request = MakeRequest(std::to_string(i), Tokens(20 + i, 10 + i), 90);
    request.n = 1 + i % 2;
    requests.push_back(request);
    ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  }
  engine.RunToEnd();
  EXPECT_GT(engine.scheduler().stats().preemptions, 0);
  for (const Request& request : requests) {
    for (int i = 0; i < request.n; ++i) {
      EXPECT_EQ(engine.results().at(request.id).outputs[i], Expected(engine, request, i, 128));
    }
  }
}

TEST(Scheduler, PriorityPassesTheQueue) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 1;
  FakeEngine engine(options, Cache(40), kVocabulary);
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) {
    Request request = MakeRequest(std::to_string(i), Tokens(10, i), 3);
    request.priority = i == 3 ? -1 : 0;
    ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  }
  while (engine.Step()) {
    for (SequenceId id : engine.scheduler().plan().admitted) {
      order.push_back(
          engine.scheduler().request(engine.scheduler().sequence(id).request).request.id);
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"3", "0", "1", "2"}));
}

TEST(Scheduler, TheLongestCachedPrefixGoesFirstButNotForever) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 1;
  options.max_overtakes = 5;
  FakeEngine engine(options, Cache(40), kVocabulary);
  const auto hot = Tokens(40, 1);
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("hot", hot, 2)).ok());
  engine.RunToEnd();
  ASSERT_TRUE(engine.scheduler().Submit(MakeRequest("cold", Tokens(40, 2), 2)).ok());
  int passed = 0;
  for (int i = 0; i < 20 && !engine.results().contains("cold"); ++i) {
    const std::string id = "hot" + std::to_string(i);
    ASSERT_TRUE(engine.scheduler().Submit(MakeRequest(id, Join(hot, Tokens(4, 50 + i)), 2)).ok());
    while (!engine.results().contains(id) && !engine.results().contains("cold")) {
      ASSERT_TRUE(engine.Step());
    }
    passed += engine.results().contains(id);
  }
  EXPECT_EQ(passed, 5);
  EXPECT_EQ(engine.scheduler().stats().overtakes_max, 5);
}

TEST(Scheduler, EndTokensAndLengthsEndSequences) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  Request request = MakeRequest("a", Tokens(10, 1), 30);
  const auto all = Expected(engine, request, 0, 256);
  const TokenId stop = all[5];
  const auto first = std::ranges::find(all, stop) - all.begin();
  request.sampling.stop_token_ids = {stop};
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  Request later = request;
  later.id = "later";
  later.sampling.min_tokens = static_cast<int>(first) + 1;
  ASSERT_TRUE(engine.scheduler().Submit(later).ok());
  engine.RunToEnd();
  EXPECT_EQ(engine.results().at("a").outputs[0].size(), static_cast<size_t>(first) + 1);
  EXPECT_EQ(engine.results().at("a").reasons[0], FinishReason::kStop);
  EXPECT_GT(engine.results().at("later").outputs[0].size(), static_cast<size_t>(first) + 1);
}

TEST(Scheduler, WhatCannotBeServedIsRefusedWithLimitAndCounts) {
  SchedulerOptions options = Options();
  options.max_waiting = 1;
  Scheduler scheduler(options, Cache(40));
  const auto error = [&](auto change) {
    Request request = MakeRequest("a", Tokens(10, 1), 5);
    change(request);
    const Result<RequestId> id = scheduler.Submit(request);
    return id.ok() ? std::string() : id.error().message;
  };
  EXPECT_NE(error([](Request& r) { r.prompt = Tokens(300, 1); }).find("300"), std::string::npos);
  EXPECT_NE(error([](Request& r) { r.prompt = Tokens(300, 1); }).find("256"), std::string::npos);
  EXPECT_NE(error([](Request& r) { r.prompt.clear(); }), "");
  EXPECT_NE(error([](Request& r) { r.n = 0; }), "");
  EXPECT_NE(error([](Request& r) { r.n = 9; }).find("at most 8"), std::string::npos);
  EXPECT_NE(error([](Request& r) { r.best_of = 0; }), "");
  EXPECT_NE(error([](Request& r) { r.sampling.max_tokens = 0; }), "");
  EXPECT_NE(error([](Request& r) { r.cache_salt.resize(5000); }), "");
  EXPECT_EQ(error([](Request&) {}), "");
  EXPECT_NE(error([](Request&) {}).find("wait already"), std::string::npos);  // queue full
  EXPECT_EQ(scheduler.stats().requests_refused, 9);
}

TEST(Scheduler, AModelLengthBeyondTheMemoryIsAnErrorWithSizes) {
  const Status status = Scheduler::Validate(Options(), Cache(20));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
  for (const char* part : {"256", "32", "20", "160"}) {  // asked, needed, available, possible
    EXPECT_NE(status.error().message.find(part), std::string::npos) << part;
  }
  SchedulerOptions options = Options();
  options.max_num_batched_tokens = 4;
  EXPECT_FALSE(Scheduler::Validate(options, Cache(40)).ok());
}

TEST(Scheduler, BeamsShareMemoryAndTheBestContinuationWins) {
  FakeEngine engine(Options(), Cache(60), kVocabulary);
  Request request = MakeRequest("beam", Tokens(40, 1), 10);
  request.n = 2;
  request.best_of = 4;
  request.beam_search.emplace();
  ASSERT_TRUE(engine.scheduler().Submit(request).ok());
  engine.RunToEnd();
  const auto& hypotheses = engine.results().at("beam").hypotheses;
  ASSERT_EQ(hypotheses.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(hypotheses[i].tokens.size(), 10u);
    if (i > 0) {
      EXPECT_LE(hypotheses[i].score, hypotheses[i - 1].score);
    }
  }
  EXPECT_EQ(engine.scheduler().stats().prefill_tokens, 40);
  EXPECT_GT(engine.scheduler().cache().stats().forks, 3);
  EXPECT_EQ(engine.scheduler().cache().stats().frames_leased, 0);
}

}  // namespace
}  // namespace quire::sched
