// Token eviction against plain references, and beside everything else the engine does.
#include "engine/kv_eviction.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/naive_llama_for_test.h"
#include "model/random_model.h"
#include "testing/engine_runner.h"
#include "testing/random_runs.h"

namespace quire::engine {
namespace {

using testing::RandomTokens;

// A made model of a few thousand weights, in f32.
class MadeModel {
 public:
  explicit MadeModel(int kv_heads)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("quire-eviction-{}-{}.gguf", ::getpid(), kv_heads)) {
    model::RandomModelOptions options;
    options.sizes = {.name = "made",
                     .vocab_size = 1000,
                     .hidden_size = 64,
                     .layers = 2,
                     .q_heads = 4,
                     .kv_heads = kv_heads,
                     .ffn_size = 96};
    options.type = DType::kF32;
    options.seed = 5;
    const Status written = WriteRandomModel(options, path_, team_, [](double) {});
    QUIRE_CHECK(written.ok());
    model_ = testing::LoadModelOrDie(path_, team_);
  }
  ~MadeModel() { std::filesystem::remove(path_); }

  const LoadedModel& model() const { return *model_; }
  std::unique_ptr<Engine> MakeEngine(EngineOptions options = {}) {
    options.kv_format.key_codec = options.kv_format.value_codec = kernels::KvCodec::kF32;
    return testing::MakeEngineOrDie(*model_, options, team_);
  }

 private:
  base::ThreadTeam team_{2};
  std::string path_;
  std::unique_ptr<LoadedModel> model_;
};

sched::Request MakeRequest(kv::EvictionPolicy policy, int prompt_tokens, int max_tokens) {
  sched::Request request;
  request.prompt = RandomTokens(prompt_tokens, 3);
  for (TokenId& token : request.prompt) token %= 1000;
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.eviction.policy = policy;
  request.eviction.budget_tokens = 24;
  return request;
}

// The paper's: over the budget, the last `recent` and the highest scores among the rest stay.
void KeepHeavyHitters(std::vector<NaiveLlama::Token>& tokens, size_t budget, size_t recent) {
  if (tokens.size() <= budget) return;
  std::ranges::sort(tokens, {}, &NaiveLlama::Token::position);
  const auto newest = tokens.end() - static_cast<ptrdiff_t>(recent);
  std::vector<NaiveLlama::Token> kept(newest, tokens.end());
  tokens.erase(newest, tokens.end());
  std::ranges::sort(tokens, [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score > b.score : a.position > b.position;
  });
  tokens.resize(budget - recent);
  kept.insert(kept.begin(), tokens.begin(), tokens.end());
  tokens = std::move(kept);
}

class HeavyHitters : public ::testing::TestWithParam<int> {};

// Prompt in chunks, 200 decode steps; layer by layer, head by head.
TEST_P(HeavyHitters, AreThoseOfAPlainReferenceAtEveryStep) {
  MadeModel made(GetParam());
  EngineOptions options;
  options.max_num_batched_tokens = 16;
  options.max_num_seqs = 4;
  auto engine = made.MakeEngine(options);
  sched::Request request = MakeRequest(kv::EvictionPolicy::kH2o, 60, 200);
  request.eviction.sinks = 0;
  request.eviction.recent = 10;
  ASSERT_TRUE(engine->Submit(request).ok());
  NaiveLlama reference(made.model(), NaiveLlama::Angles::kPosition);
  int computed = 0;
  int compared = 0;
  while (engine->Step([](const SequenceUpdate&) {})) {
    if (engine->scheduler().running().empty()) break;
    const sched::Sequence& sequence =
        engine->scheduler().sequence(engine->scheduler().running().front());
    for (; computed < sequence.computed(); ++computed) {
      reference.Forward(sequence.tokens[computed], computed);
    }
    if (sequence.output_tokens() == 0) continue;  // the prompt is not complete
    for (size_t head = 0; head < reference.kept().size(); ++head) {
      std::vector<NaiveLlama::Token>& tokens = reference.kept()[head];
      KeepHeavyHitters(tokens, 24, 10);
      std::set<int> expected;
      for (const NaiveLlama::Token& token : tokens) expected.insert(token.position);
      const auto positions =
          engine->eviction_state().PositionsOf(sequence.id, static_cast<int>(head));
      ASSERT_EQ(std::set<int>(positions.begin(), positions.end()), expected)
          << "head " << head << " after " << computed << " tokens";
      ++compared;
    }
  }
  EXPECT_EQ(compared, 199 * 2 * GetParam());
}
INSTANTIATE_TEST_SUITE_P(MhaGqaMqa, HeavyHitters, ::testing::Values(4, 2, 1));

// What a model of plain loops, whose keys and queries turn by their slots, says of each token of a
// text past StreamingLLM's window, against the engine's log probabilities.
class Streaming : public ::testing::TestWithParam<int> {};

TEST_P(Streaming, EqualsTurningAllKeysToTheirSlotsAtEveryStep) {
  constexpr int kPrompt = 40;
  constexpr int kSteps = testing::kSanitized ? 200 : 3000;
  MadeModel made(GetParam());
  auto engine = made.MakeEngine();
  sched::Request request = MakeRequest(kv::EvictionPolicy::kStreaming, kPrompt, kSteps);
  request.forced_output = RandomTokens(kSteps, 9);
  for (TokenId& token : request.forced_output) token %= 1000;
  request.sampling.logprobs = 20;
  const Completion completion = testing::GenerateOne(*engine, request);
  const auto& logprobs = completion.choices[0].logprobs;
  ASSERT_EQ(logprobs.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(completion.usage.kv_tokens_kept, 25);  // the last step evicts nothing any more

  NaiveLlama reference(made.model(), NaiveLlama::Angles::kSlot);
  std::vector<double> logits;
  for (int i = 0; i < kPrompt; ++i) logits = reference.Forward(request.prompt[i], i);
  double worst = 0;
  for (int step = 0; step < kSteps; ++step) {
    // Four sinks and the newest twenty.
    for (std::vector<NaiveLlama::Token>& tokens : reference.kept()) {
      while (tokens.size() > 24) tokens.erase(tokens.begin() + 4);
    }
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit);
    for (const auto& [token, logprob] : logprobs[step].top) {
      const double expected = logits[token] - std::log(sum);
      worst = std::max(worst, std::fabs(logprob - expected) / std::fabs(expected));
    }
    ASSERT_LT(worst, 1e-4) << "step " << step;
    logits = reference.Forward(request.forced_output[step], kPrompt + step);
  }
}
INSTANTIATE_TEST_SUITE_P(MhaGqa, Streaming, ::testing::Values(4, 2));

// The same requests alone, in a batch of all, in chunks, and after a preemption.
TEST(KvEviction, NeitherBatchNorChunksNorPreemptionChangeABit) {
  base::ThreadTeam team(2);
  const auto model = testing::LoadModelOrDie("models/draft/draft-q8_0.gguf", team);
  using kernels::KvCodec;
  for (const KvCodec codec : {KvCodec::kF16, KvCodec::kInt8, KvCodec::kInt4, KvCodec::kKivi2}) {
    SCOPED_TRACE(Name(codec));
    EngineOptions options;
    options.kv_format.key_codec = options.kv_format.value_codec = codec;
    options.max_num_seqs = 16;
    EngineOptions chunked = options;
    chunked.max_num_batched_tokens = 37;
    const auto run = [&](const EngineOptions& with, std::vector<sched::Request> requests,
                         int preempt_every) {
      auto engine = testing::MakeEngineOrDie(*model, with, team);
      int step = 0;
      return testing::Generate(*engine, std::move(requests), [&] {
        if (preempt_every > 0 && ++step % preempt_every == 0) engine->PreemptAll();
      });
    };
    std::vector<sched::Request> requests;
    for (const kv::EvictionPolicy policy : kv::kEvictionPolicies) {
      for (const int prompt : {60, 300}) {
        sched::Request request = MakeRequest(policy, prompt, 80);
        request.prompt = RandomTokens(prompt, 100 + prompt);
        request.eviction.budget_tokens = 100;
        request.sampling.logprobs = 1;
        requests.push_back(std::move(request));
      }
    }
    const auto together = run(options, requests, 0);
    const auto in_chunks = run(chunked, requests, 0);
    const auto preempted = run(chunked, requests, 30);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto alone = run(options, {requests[i]}, 0);
      const std::vector<TokenLogprobs>& expected = alone[0].choices[0].logprobs;
      for (const auto* completions : {&together, &in_chunks, &preempted}) {
        const Choice& choice = (*completions)[i].choices[0];
        ASSERT_EQ(choice.tokens, alone[0].choices[0].tokens) << "request " << i;
        for (size_t t = 0; t < expected.size(); ++t) {
          ASSERT_EQ(choice.logprobs[t].logprob, expected[t].logprob)
              << "request " << i << " token " << t;
        }
      }
    }
  }
}

EngineOptions OptionsOf(kernels::KvCodec codec) {
  EngineOptions options;
  options.kv_format.key_codec = options.kv_format.value_codec = codec;
  options.max_num_seqs = 16;
  return options;
}

sched::Request StackRequest(kv::EvictionPolicy policy, int prompt_tokens, int max_tokens) {
  sched::Request request = MakeRequest(policy, prompt_tokens, max_tokens);
  request.prompt = RandomTokens(prompt_tokens, prompt_tokens);
  request.eviction.budget_tokens = 100;
  request.sampling.temperature = 1;
  return request;
}

class KvEvictionStack : public ::testing::Test {
 protected:
  base::ThreadTeam team_{2};
  std::unique_ptr<LoadedModel> model_ =
      testing::LoadModelOrDie("models/draft/draft-q8_0.gguf", team_);
};

// What an evicting request published serves others, and is what they would have computed.
TEST_F(KvEvictionStack, PrefixHitsAndInt4AndHeavyHitters) {
  auto engine = testing::MakeEngineOrDie(*model_, OptionsOf(kernels::KvCodec::kInt4), team_);
  const sched::Request evicting = StackRequest(kv::EvictionPolicy::kH2o, 400, 60);
  const Completion first = testing::GenerateOne(*engine, evicting);
  EXPECT_EQ(first.usage.cached_tokens, 0);
  EXPECT_LE(*first.usage.kv_tokens_kept, 128);
  sched::Request plain = evicting;
  plain.eviction = {};
  const Completion hit = testing::GenerateOne(*engine, plain);
  EXPECT_EQ(hit.usage.cached_tokens, 384);
  EXPECT_FALSE(hit.usage.kv_tokens_kept.has_value());
  auto cold = testing::MakeEngineOrDie(*model_, OptionsOf(kernels::KvCodec::kInt4), team_);
  EXPECT_EQ(hit.choices[0].tokens, testing::GenerateOne(*cold, plain).choices[0].tokens);
  // Again, from a full cache: the same tokens.
  EXPECT_EQ(testing::GenerateOne(*engine, evicting).choices[0].tokens, first.choices[0].tokens);
  // Policies that need the last queries alone do hit, and are none the wiser.
  for (const auto policy :
       {kv::EvictionPolicy::kSnapKv, kv::EvictionPolicy::kTova, kv::EvictionPolicy::kStreaming}) {
    sched::Request request = evicting;
    request.eviction.policy = policy;
    const Completion warm = testing::GenerateOne(*engine, request);
    EXPECT_GE(warm.usage.cached_tokens, 320) << NameOf(policy);
    auto alone = testing::MakeEngineOrDie(*model_, OptionsOf(kernels::KvCodec::kInt4), team_);
    EXPECT_EQ(warm.choices[0].tokens, testing::GenerateOne(*alone, request).choices[0].tokens)
        << NameOf(policy);
  }
}

TEST_F(KvEvictionStack, StreamingAndKivi2GoOnBeyondTheContextInConstantMemory) {
  constexpr int kTokens = testing::kSanitized ? 1200 : 3000;
  auto engine = testing::MakeEngineOrDie(*model_, OptionsOf(kernels::KvCodec::kKivi2), team_);
  ASSERT_TRUE(engine->Submit(StackRequest(kv::EvictionPolicy::kStreaming, 300, kTokens)).ok());
  int leased_max = 0;
  int tokens = 0;
  while (engine->Step(
      [&](const SequenceUpdate& update) { tokens += static_cast<int>(update.tokens.size()); })) {
    const auto stats = engine->scheduler().cache().stats();
    if (tokens > 0) leased_max = std::max(leased_max, stats.frames_leased);
    if (tokens % 97 == 0) engine->scheduler().CheckInvariants();
  }
  EXPECT_EQ(tokens, kTokens);
  const kvstore::KvLayout& layout = engine->store().layout();
  EXPECT_LE(leased_max, kv::KvCache::FramesForSequence(layout.CacheOptions(1),
                                                       128 + layout.residual_tokens(), 1));
  EXPECT_EQ(engine->scheduler().cache().stats().frames_leased, 0);
}

// What is remembered of the prompt is shared until the answers part: whether tokens are given up at
// its end or later.
TEST_F(KvEvictionStack, SeveralAnswersToOnePromptAreThoseOfOneEach) {
  auto engine = testing::MakeEngineOrDie(*model_, OptionsOf(kernels::KvCodec::kInt8), team_);
  for (const kv::EvictionPolicy policy : kv::kEvictionPolicies) {
    if (policy == kv::EvictionPolicy::kNone) continue;
    for (const int prompt : {350, 60}) {
      SCOPED_TRACE(fmt::format("{} {}", kv::NameOf(policy), prompt));
      sched::Request request = StackRequest(policy, prompt, 80);
      request.n = 4;
      const Completion together = testing::GenerateOne(*engine, request);
      EXPECT_EQ(*together.usage.kv_tokens_kept, 4 * 101);
      for (int i = 0; i < 4; ++i) {
        sched::Request one = request;
        one.n = 1;
        one.sampling.seed = request.sampling.seed + i;
        EXPECT_EQ(testing::GenerateOne(*engine, one).choices[0].tokens, together.choices[i].tokens);
      }
    }
  }
}

// Memory held never exceeds the budget, the tail and one block, in every codec.
TEST_F(KvEvictionStack, MemoryIsBoundedAtEveryStepInEveryCodec) {
  for (const kernels::KvCodec codec : kernels::kAllKvCodecs) {
    SCOPED_TRACE(Name(codec));
    auto engine = testing::MakeEngineOrDie(*model_, OptionsOf(codec), team_);
    const kvstore::KvLayout& layout = engine->store().layout();
    sched::Request request = StackRequest(kv::EvictionPolicy::kH2o, 400, 200);
    request.eviction.budget_tokens = 128;
    ASSERT_TRUE(engine->Submit(request).ok());
    const int most = 128 + layout.residual_tokens() + layout.block_size();
    bool told = false;
    int compared = 0;
    while (engine->Step([&](const SequenceUpdate&) { told = true; })) {
      if (!told || engine->scheduler().running().empty()) continue;
      const kv::Lease& lease =
          engine->scheduler().sequence(engine->scheduler().running().front()).lease;
      ASSERT_LE(lease.reserved(), most);
      int slots = static_cast<int>(lease.frames(0).size()) * layout.block_size();
      slots += static_cast<int>(lease.tail(0).blocks.size()) * layout.block_size();
      ASSERT_LE(slots, most);
      ++compared;
    }
    EXPECT_GT(compared, 190);
  }
}

// Few prompts among them, so that they share prefixes.
std::vector<sched::Request> RandomRequests(int count, base::CounterRng& rng) {
  const auto below = [&](int bound) { return static_cast<int>(rng.NextBelow(bound)); };
  std::vector<sched::Request> requests;
  for (int i = 0; i < count; ++i) {
    sched::Request request =
        StackRequest(kv::kEvictionPolicies[below(5)], 10 + below(250), 1 + below(100));
    request.prompt = RandomTokens(static_cast<int>(request.prompt.size()), 1 + below(2));
    request.eviction.budget_tokens = 40 + below(80);
    request.priority = below(2);
    request.sampling.seed = i;
    if (below(4) == 0) request.n = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Arrivals, cancellations and preemptions in little memory: what is not cancelled says what it
// would have said alone, and nothing leaks.
TEST_F(KvEvictionStack, UnderRandomLoadEveryRequestEndsAsIfItWereAlone) {
  const uint64_t seed = testing::TestSeed(1);
  for (int64_t round = 0; round < testing::TestRuns(10); ++round) {
    base::CounterRng rng(seed, round, 0);
    const auto below = [&](int bound) { return static_cast<int>(rng.NextBelow(bound)); };
    using kernels::KvCodec;
    constexpr KvCodec kCodecs[] = {KvCodec::kF16, KvCodec::kInt8, KvCodec::kInt4, KvCodec::kKivi4,
                                   KvCodec::kFp8E4M3};
    EngineOptions options = OptionsOf(kCodecs[round % 5]);
    SCOPED_TRACE(fmt::format("round {} {}", round, Name(kCodecs[round % 5])));
    options.max_model_len = 400;
    options.max_num_batched_tokens = 64 + below(200);
    EngineOptions little = options;
    little.kv_cache_memory = size_t{1} << 20;
    std::vector<sched::Request> requests = RandomRequests(14, rng);
    auto engine = testing::MakeEngineOrDie(*model_, little, team_);
    std::map<int, size_t> index_of;
    std::vector<CompletionBuilder> builders;
    std::vector<RequestId> ids;
    std::set<size_t> cancelled;
    const UpdateSink sink = [&](const SequenceUpdate& update) {
      builders[index_of.at(update.request.value)].Add(update);
    };
    size_t next = 0;
    do {
      while (next < requests.size() && below(3) > 0) {
        builders.emplace_back(requests[next]);
        auto id = engine->Submit(requests[next]);
        if (!id.ok()) {  // too little memory to move to
          requests[next].eviction = {};
          id = engine->Submit(requests[next]);
        }
        ASSERT_TRUE(id.ok()) << id.error().message;
        ids.push_back(*id);
        index_of[id->value] = next++;
      }
      if (below(60) == 0 && !ids.empty()) {
        const size_t victim = below(static_cast<int>(ids.size()));
        if (index_of.at(ids[victim].value) == victim && !builders[victim].done()) {
          engine->Cancel(ids[victim]);
          cancelled.insert(victim);
        }
      }
      if (below(20) == 0) engine->PreemptAll();
      engine->scheduler().CheckInvariants();
      engine->Step(sink);
    } while (next < requests.size() || !engine->idle());
    EXPECT_EQ(engine->scheduler().cache().stats().frames_leased, 0);
    auto alone = testing::MakeEngineOrDie(*model_, options, team_);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (cancelled.contains(i)) continue;
      const Completion expected = testing::GenerateOne(*alone, requests[i]);
      const Completion completion = builders[i].Take();
      for (size_t c = 0; c < expected.choices.size(); ++c) {
        ASSERT_EQ(completion.choices[c].tokens, expected.choices[c].tokens)
            << "request " << i << ": " << NameOf(requests[i].eviction.policy) << " "
            << requests[i].eviction.budget_tokens << ", prompt " << requests[i].prompt.size()
            << ", choice " << c << " of " << requests[i].n;
      }
    }
  }
}

}  // namespace
}  // namespace quire::engine
