// The scheduler under random arrivals, cancellations, priorities, siblings, beams and tiny pools:
// every request ends with the tokens it would have had alone, nothing leaks, nobody starves.
#include <gtest/gtest.h>

#include "sched/fake_engine.h"
#include "testing/random_runs.h"

namespace quire::sched {
namespace {

class RandomLoad {
 public:
  explicit RandomLoad(uint64_t seed) : rng_(seed, 1, 0) {
    options_.max_num_seqs = 2 + Below(10);
    options_.max_num_batched_tokens = options_.max_num_seqs + Below(60);
    options_.max_model_len = 20 + Below(100);
    options_.max_overtakes = Below(6);
    options_.eos_ids = {0};
    cache_.block_tokens = 1 << Below(5);
    switch (Below(4)) {
      case 0:
        cache_.groups = {{}, {1 + Below(40)}};
        break;
      case 1:
        cache_.groups = {{1 + Below(40)}};
        break;
      case 2:
        cache_.groups = {{}, {}, {1 + Below(20)}};
        break;
      default:
        break;
    }
    if (Below(2) == 0) AddTail();
    if (Below(3) == 0) AddSinks();
    if (Below(3) == 0) {
      cache_.hash = [](uint64_t, std::span<const TokenId>) { return 7; };
    }
    if (Below(6) == 0) cache_.prefix_caching = kv::PrefixCaching::kOff;
    cache_.hash_key = seed;
    cache_.frames = 1;
    const int alone = kv::KvCache::FramesForSequence(cache_, options_.max_model_len, 1);
    cache_.frames = alone + Below(3) * Below(4 * alone);
    if (Below(2) == 0) {
      drafts_max_ = 1 + Below(12);
      drafts_right_ = 25 * Below(5);
    }
    for (int i = 0; i < 3; ++i) prefixes_.push_back(Tokens(1 + Below(options_.max_model_len / 2)));
  }

  void Run(int requests) {
    engine_ = std::make_unique<FakeEngine>(options_, cache_, kVocabulary);
    int submitted = 0;
    for (int step = 0; submitted < requests || !engine_->scheduler().idle(); ++step) {
      ASSERT_LT(step, 400 * requests) << "no end";
      for (int arrivals = Below(3); arrivals > 0 && submitted < requests; --arrivals) {
        Submit(submitted++);
      }
      MaybeInterrupt();
      MaybeSitOut();
      if (drafts_max_ > 0) engine_->ProposeDrafts(rng_, drafts_max_, drafts_right_);
      engine_->scheduler().CheckInvariants();
      const bool worked = engine_->Step([&] { MaybeInterrupt(); });
      ASSERT_TRUE(worked || engine_->scheduler().idle()) << "work waits and none was planned";
      engine_->scheduler().CheckInvariants();
    }
    engine_->scheduler().Schedule();
    EXPECT_EQ(engine_->scheduler().cache().stats().frames_leased, 0);
    EXPECT_LE(engine_->scheduler().stats().overtakes_max, options_.max_overtakes);
    CheckResults();
  }

  int64_t evictions() const { return engine_->scheduler().stats().evictions; }

 private:
  static constexpr int kVocabulary = 24;

  void AddTail() {
    cache_.residual_tokens = cache_.block_tokens * (1 + Below(4));
    for (kv::LayerGroup& group : cache_.groups) group.tail_frames = 1 + Below(3);
  }
  // They follow the groups they belong to.
  void AddSinks() {
    const size_t groups = cache_.groups.size();
    for (size_t g = 0; g < groups; ++g) {
      cache_.groups.push_back({.window_tokens = cache_.groups[g].window_tokens,
                               .tail_frames = 0,
                               .blocks = kv::GroupBlocks::kFirst});
    }
  }

  int Below(int bound) { return static_cast<int>(rng_.NextBelow(bound)); }
  std::vector<TokenId> Tokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(1 + Below(kVocabulary - 1));
    return tokens;
  }

  // Any but beams, which go on together.
  void MaybeSitOut() {
    if (Below(4) > 0) return;
    const Scheduler& scheduler = engine_->scheduler();
    std::vector<SequenceId> sitting_out;
    for (const SequenceId id : scheduler.running()) {
      const RequestState& request = scheduler.request(scheduler.sequence(id).request);
      if (!request.beams && Below(2) == 0) sitting_out.push_back(id);
    }
    engine_->SitOut(std::move(sitting_out));
  }

  void Submit(int number) {
    Request request;
    request.id = std::to_string(number);
    if (Below(3) > 0) request.prompt = prefixes_[Below(3)];
    const int room = options_.max_model_len - 1 - static_cast<int>(request.prompt.size());
    const auto own = Tokens(Below(3) == 0 ? 1 : 1 + Below(room));
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.sampling.max_tokens = 1 + Below(30);
    request.sampling.ignore_eos = Below(2) == 0;
    if (Below(4) == 0) request.sampling.min_tokens = Below(5);
    if (Below(5) == 0) request.sampling.prompt_logprobs = 0;
    if (Below(8) == 0) request.sampling.max_tokens = request.sampling.prompt_logprobs ? 0 : 1;
    request.n = Below(3) == 0 ? 1 + Below(std::min(4, options_.max_num_seqs)) : 1;
    if (Below(4) == 0 && request.sampling.max_tokens > 0) request.beam_search.emplace();
    request.priority = Below(4) == 0 ? Below(3) : 0;
    if (Below(4) == 0) request.cache_salt = "salt";
    request.adapter = Below(8) == 0;
    if (Below(3) == 0 && !request.beam_search) AddEviction(request);
    Result<RequestId> id = engine_->scheduler().Submit(request);
    if (!id.ok() && request.eviction.evicts()) {  // too little memory to move to, or a window
      request.eviction = {};
      id = engine_->scheduler().Submit(request);
    }
    ASSERT_TRUE(id.ok()) << id.error().message;
    live_.push_back(*id);
    requests_.push_back(std::move(request));
  }

  void AddEviction(Request& request) {
    request.eviction.policy = kv::kEvictionPolicies[1 + Below(4)];
    request.eviction.sinks = Below(4);
    request.eviction.observed = 1 + Below(8);
    if (Below(2) == 0) {
      request.eviction.budget_tokens = 8 + Below(20);
    } else {
      request.eviction.budget_ratio = 0.1 * (1 + Below(10));
    }
    if (Below(2) == 0) request.eviction.recent = 1 + Below(4);
  }

  // Cancels a request or ends a sequence now and then.
  void MaybeInterrupt() {
    const Scheduler& scheduler = engine_->scheduler();
    if (Below(30) == 0 && !scheduler.running().empty()) {
      const SequenceId id =
          scheduler.running()[Below(static_cast<int>(scheduler.running().size()))];
      disturbed_.push_back(scheduler.request(scheduler.sequence(id).request).request.id);
      engine_->scheduler().Finish(id, FinishReason::kStop);
    }
    if (Below(25) == 0 && !scheduler.waiting().empty()) {
      const SequenceId id =
          scheduler.waiting()[Below(static_cast<int>(scheduler.waiting().size()))];
      const RequestState& request = scheduler.request(scheduler.sequence(id).request);
      disturbed_.push_back(request.request.id);
      engine_->scheduler().Cancel(request.id);
    }
    if (Below(40) == 0 && !live_.empty()) Cancel(live_[Below(static_cast<int>(live_.size()))]);
  }

  void Cancel(RequestId id) {
    // Old ids may belong to nobody or to a later request: both are what a late client does.
    for (SequenceId s : engine_->scheduler().running()) {
      const Sequence& sequence = engine_->scheduler().sequence(s);
      if (sequence.request == id) {
        disturbed_.push_back(engine_->scheduler().request(id).request.id);
      }
    }
    for (SequenceId s : engine_->scheduler().waiting()) {
      const Sequence& sequence = engine_->scheduler().sequence(s);
      if (sequence.request == id) {
        disturbed_.push_back(engine_->scheduler().request(id).request.id);
      }
    }
    engine_->scheduler().Cancel(id);
  }

  std::vector<TokenId> Alone(const Request& request, int index) const {
    std::vector<TokenId> tokens = request.prompt;
    std::vector<TokenId> output;
    while (static_cast<int>(output.size()) < request.sampling.max_tokens &&
           (request.eviction.policy == kv::EvictionPolicy::kStreaming ||
            static_cast<int>(tokens.size()) < options_.max_model_len)) {
      tokens.push_back(engine_->NextToken(tokens, index));
      output.push_back(tokens.back());
      if (tokens.back() == 0 && !request.sampling.ignore_eos &&
          static_cast<int>(output.size()) > request.sampling.min_tokens) {
        break;
      }
    }
    return output;
  }

  void CheckResults() {
    ASSERT_EQ(engine_->results().size(), requests_.size());
    for (const Request& request : requests_) {
      const FakeResult& result = engine_->results().at(request.id);
      if (std::ranges::find(disturbed_, request.id) != disturbed_.end()) continue;
      if (request.beam_search) {
        // A run with room for everything is the reference.
        FakeEngine alone(RoomyOptions(), RoomyCache(), kVocabulary);
        ASSERT_TRUE(alone.scheduler().Submit(request).ok());
        alone.RunToEnd();
        const auto& expected = alone.results().at(request.id).hypotheses;
        ASSERT_EQ(result.hypotheses.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(result.hypotheses[i].tokens, expected[i].tokens);
          EXPECT_EQ(result.hypotheses[i].score, expected[i].score);
        }
        continue;
      }
      for (int i = 0; i < request.sequences(); ++i) {
        EXPECT_EQ(result.outputs[i], Alone(request, i)) << "request " << request.id;
      }
      if (request.sampling.prompt_logprobs) {
        EXPECT_EQ(result.cached_tokens, 0);
      }
    }
  }

  SchedulerOptions RoomyOptions() const {
    SchedulerOptions options = options_;
    options.max_num_batched_tokens = 1000;
    return options;
  }
  kv::KvCacheOptions RoomyCache() const {
    kv::KvCacheOptions options = cache_;
    options.frames = 4000;
    return options;
  }

  base::CounterRng rng_;
  SchedulerOptions options_;
  kv::KvCacheOptions cache_;
  std::vector<std::vector<TokenId>> prefixes_;
  std::unique_ptr<FakeEngine> engine_;
  std::vector<Request> requests_;
  std::vector<RequestId> live_;
  std::vector<std::string> disturbed_;
  int drafts_max_ = 0;
  int drafts_right_ = 0;  // of 100
};

TEST(SchedulerUnderRandomLoad, EveryRequestEndsAsIfItWereAlone) {
  const uint64_t seed = testing::TestSeed(20261129);
  const int64_t rounds = testing::TestRuns(2000);
  int64_t evictions = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    RandomLoad load(base::Mix64(seed) + round);
    load.Run(20);
    evictions += load.evictions();
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "in round " << round;
  }
  EXPECT_GT(evictions, rounds);
}

}  // namespace
}  // namespace quire::sched
