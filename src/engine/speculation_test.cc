// Speculation never changes an answer: not a token, not a bit of a log probability, not a count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "testing/engine_runner.h"
#include "testing/kv_format_cases.h"
#include "testing/oracle_drafter.h"
#include "testing/sanitized.h"

namespace quire::engine {
namespace {

using sched::OutputConstraint;
using sched::Request;
using testing::Generate;
using testing::GenerateOne;
using testing::KvFormatCase;
using testing::OracleDrafter;
using testing::RandomTokens;

constexpr const char* kModel = "models/draft/draft-q8_0.gguf";

Request MakeRequest(std::vector<TokenId> prompt, int max_tokens, uint64_t seed) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.sampling.logprobs = 2;
  if (seed % 3 == 0) request.sampling.temperature = 0;
  return request;
}

void ExpectSame(const Completion& a, const Completion& b) {
  EXPECT_EQ(a.usage.prompt_tokens, b.usage.prompt_tokens);
  EXPECT_EQ(a.usage.completion_tokens, b.usage.completion_tokens);
  ASSERT_EQ(a.choices.size(), b.choices.size());
  for (size_t c = 0; c < a.choices.size(); ++c) {
    const Choice& x = a.choices[c];
    const Choice& y = b.choices[c];
    EXPECT_EQ(x.tokens, y.tokens);
    EXPECT_EQ(x.text, y.text);
    EXPECT_EQ(x.finish, y.finish);
    EXPECT_EQ(x.stop_reason, y.stop_reason);
    ASSERT_EQ(x.logprobs.size(), y.logprobs.size());
    for (size_t i = 0; i < x.logprobs.size(); ++i) {
      EXPECT_EQ(x.logprobs[i].token, y.logprobs[i].token);
      EXPECT_EQ(x.logprobs[i].logprob, y.logprobs[i].logprob) << "token " << i;
      EXPECT_EQ(x.logprobs[i].top, y.logprobs[i].top) << "token " << i;
    }
  }
}

void ExpectSame(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(a[i], b[i]);
  }
}

std::unique_ptr<OracleDrafter> OracleOf(const std::vector<Request>& requests,
                                        const std::vector<Completion>& said, int length,
                                        double right) {
  auto oracle = std::make_unique<OracleDrafter>(length, right, 7);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (const Choice& choice : said[i].choices) {
      oracle->Learn(requests[i].prompt, choice.index, choice.tokens);
    }
  }
  return oracle;
}

// Everything a request can ask for, `count` of them.
std::vector<Request> MixedRequests(int count) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request = MakeRequest(RandomTokens(3 + 23 * i % 140, i), 20 + 7 * i % 60, i);
    sched::SamplingParams& sampling = request.sampling;
    if (i % 4 == 1) {
      sampling.repetition_penalty = 1.2f;
      sampling.frequency_penalty = 0.3f;
      sampling.presence_penalty = 0.2f;
      sampling.top_p = 0.9f;
    }
    if (i % 4 == 2) {
      sampling.top_k = 20;
      sampling.min_p = 0.02f;
      sampling.min_tokens = 10;
      sampling.logit_bias = {{300, 1.5f}, {301, -4.0f}};
    }
    if (i % 5 == 3) request.n = 3;
    if (i % 5 == 4) sampling.bad_words = {{400}, {500, 501}};
    if (i % 6 == 5) sampling.stop = {"e", "the"};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Under sanitizers, where each takes ten times as long, the first few of the quantised ones.
std::vector<KvFormatCase> AllKvFormats() {
  std::vector<KvFormatCase> cases = testing::QuantizedKvFormats();
  if (testing::kSanitized) cases.erase(cases.begin() + 6, cases.end());
  for (const kernels::KvCodec codec : kernels::kPlainKvCodecs) {
    cases.push_back({std::string(Name(codec)), {.key_codec = codec, .value_codec = codec}});
  }
  return cases;
}

class Speculation : public ::testing::TestWithParam<KvFormatCase> {
 protected:
  std::unique_ptr<Engine> Make(EngineOptions options = {}) {
    options.kv_format = GetParam().format;
    options.max_num_seqs = 24;
    return testing::MakeEngineOrDie(*model_, options, *team_);
  }
  // What the requests say without speculation.
  std::vector<Completion> Plain(const std::vector<Request>& requests, EngineOptions options = {}) {
    options.speculation = {};
    return Generate(*Make(options), requests);
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
std::unique_ptr<base::ThreadTeam> Speculation::team_;
std::unique_ptr<LoadedModel> Speculation::model_;

class SpeculationOverKvFormats : public Speculation {};

TEST_P(SpeculationOverKvFormats, ABatchWithMixedAcceptanceSaysWhatItSaysWithout) {
  const std::vector<Request> requests = MixedRequests(16);
  const std::vector<Completion> plain = Plain(requests);
  for (const double right : {0.0, 0.7, 1.0}) {
    SCOPED_TRACE(right);
    EngineOptions options;
    options.speculation.tokens = 7;
    auto engine = Make(options);
    engine->AddDrafter(OracleOf(requests, plain, 7, right));
    ExpectSame(Generate(*engine, requests,
                        [&] {
                          // What was rejected holds no memory between steps.
                          for (const SequenceId id : engine->scheduler().running()) {
                            const kv::Lease& lease = engine->scheduler().sequence(id).lease;
                            const auto& drafts = engine->scheduler().sequence(id).drafts;
                            EXPECT_EQ(lease.reserved(), lease.committed());
                            EXPECT_TRUE(drafts.empty());
                          }
                        }),
               plain);
    const SpeculationStats& stats = engine->speculation();
    EXPECT_GT(stats.draft_tokens, 100);
    EXPECT_EQ(stats.accepted_tokens, engine->scheduler().stats().draft_tokens_accepted);
    if (right == 0.0) {
      EXPECT_EQ(stats.accepted_tokens, 0);
    }
    if (right == 1.0) {
      EXPECT_EQ(stats.accepted_tokens, stats.draft_tokens);
    }
    // Once more: the prompts are cached now.
    ExpectSame(Generate(*engine, requests), plain);
    EXPECT_GT(engine->scheduler().stats().prompt_tokens_hit, 0);
  }
}

TEST_P(SpeculationOverKvFormats, PreemptionAmidDraftsChangesNothing) {
  const std::vector<Request> requests = MixedRequests(6);
  const std::vector<Completion> plain = Plain(requests);
  EngineOptions options;
  options.speculation.tokens = 5;
  options.max_num_batched_tokens = 64;  // four steps compute anything again
  auto engine = Make(options);
  engine->AddDrafter(OracleOf(requests, plain, 5, 0.8));
  int step = 0;
  ExpectSame(Generate(*engine, requests,
                      [&] {
                        if (++step % 6 == 0) engine->PreemptAll();
                      }),
             plain);
  EXPECT_GT(engine->scheduler().stats().recomputed_tokens, 0);
  EXPECT_GT(engine->speculation().accepted_tokens, 0);
}

// Memory for little more than one sequence: drafts get none that anybody needs.
TEST_P(SpeculationOverKvFormats, ScarceMemoryPreemptsNobodyForDrafts) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(MakeRequest(RandomTokens(60, 50 + i), 100, i));
  requests[1].n = 2;
  EngineOptions tight;
  tight.max_model_len = 160;
  tight.speculation.tokens = 8;
  const auto layout =
      kvstore::KvLayout::Create(model::KvGeometryOf(model_->config()), GetParam().format);
  const int least = kv::KvCache::FramesForSequence(layout->CacheOptions(1), 160, 1);
  tight.kv_cache_memory = (least + least / 2) * layout->frame_bytes();
  const std::vector<Completion> plain = Plain(requests);
  auto engine = Make(tight);
  engine->AddDrafter(OracleOf(requests, plain, 8, 0.9));
  ExpectSame(Generate(*engine, requests), plain);
  EXPECT_GT(engine->scheduler().stats().preemptions, 0);
  EXPECT_GT(engine->speculation().accepted_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(KvFormats, SpeculationOverKvFormats, ::testing::ValuesIn(AllKvFormats()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Speculation, FiveHundredPromptsSayTheSameWithPromptLookup) {
  std::vector<Request> requests;
  for (int i = 0; i < (testing::kSanitized ? 30 : 500); ++i) {
    Request request = MakeRequest(RandomTokens(2 + i % 60, 1000 + i), 8 + i % 20, 3 * i);
    // Something to find: the prompt's middle once more at its end.
    const std::vector<TokenId> middle(request.prompt.begin() + request.prompt.size() / 3,
                                      request.prompt.begin() + request.prompt.size() / 2);
    request.prompt.insert(request.prompt.end(), middle.begin(), middle.end());
    request.sampling.logprobs.reset();
    requests.push_back(std::move(request));
  }
  EngineOptions options;
  options.max_model_len = 128;  // little memory: its invariants are recounted at every step
  options.kv_cache_memory = size_t{4} << 20;
  const std::vector<Completion> plain = Plain(requests, options);
  options.speculation = {.methods = {DraftMethod::kNgram}, .tokens = 4};
  for (int batch : {1, 5, 16}) {
    auto engine = Make(options);
    std::vector<Completion> completions;
    for (size_t i = 0; i < requests.size(); i += batch) {
      const size_t end = std::min(requests.size(), i + batch);
      for (Completion& one : Generate(*engine, {requests.begin() + i, requests.begin() + end})) {
        completions.push_back(std::move(one));
      }
    }
    ExpectSame(completions, plain);
    EXPECT_GT(engine->speculation().accepted_tokens, std::ssize(requests));
  }
}

// The text ends inside a run of accepted drafts, for every reason that there is.
TEST_P(Speculation, EndsInsideDraftsAreWhereTheyAreWithout) {
  Request base = MakeRequest(RandomTokens(20, 23), 40, 3);
  base.sampling.ignore_eos = true;
  const Choice full = GenerateOne(*Make(), base).choices[0];
  std::vector<Request> requests;
  for (int length = 1; length <= 12; ++length) {
    requests.push_back(base);
    requests.back().sampling.max_tokens = length;
    requests.push_back(base);
    requests.back().sampling.stop_token_ids = {full.tokens[length]};
    requests.push_back(requests.back());
    requests.back().sampling.min_tokens = length + 2;
    requests.push_back(requests.back());
    requests.back().sampling.include_stop_in_output = true;
  }
  for (size_t at = 2; at + 5 < full.text.size() && at < 40; at += 3) {
    requests.push_back(base);
    requests.back().sampling.stop = {full.text.substr(at, 5)};
    requests.push_back(requests.back());
    requests.back().sampling.include_stop_in_output = true;
  }
  for (Request& request : requests) {
    EngineOptions options;
    options.speculation.tokens = 15;
    auto engine = Make(options);
    auto oracle = std::make_unique<OracleDrafter>(15, 1.0, 1);
    oracle->Learn(request.prompt, 0, full.tokens);  // also beyond the end
    engine->AddDrafter(std::move(oracle));
    ExpectSame(GenerateOne(*engine, request), GenerateOne(*Make(), request));
  }
}

TEST_P(Speculation, TheLongestSequenceIsNotOverrun) {
  EngineOptions options;
  options.max_model_len = 100;
  options.speculation.tokens = 15;
  Request request = MakeRequest(RandomTokens(70, 5), 500, 3);
  request.sampling.ignore_eos = true;
  const std::vector<Completion> plain = Plain({request}, options);
  ASSERT_EQ(plain[0].choices[0].tokens.size(), 30u);
  auto engine = Make(options);
  engine->AddDrafter(OracleOf({request}, plain, 15, 1.0));
  ExpectSame(Generate(*engine, {request}), plain);
}

// More rows of logits than are computed at a time: a sequence's rows lie in two slices.
TEST_P(Speculation, RowsOfOneSequenceInTwoSlicesOfLogitsAreDrawnInOrder) {
  std::vector<Request> requests = MixedRequests(20);
  for (Request& request : requests) request.sampling.max_tokens = 60;
  const std::vector<Completion> plain = Plain(requests);
  EngineOptions options;
  options.speculation.tokens = 15;
  auto engine = Make(options);
  engine->AddDrafter(OracleOf(requests, plain, 15, 0.97));
  int most = 0;
  ExpectSame(Generate(*engine, requests,
                      [&] { most = std::max(most, engine->scheduler().plan().draft_tokens); }),
             plain);
  EXPECT_GT(most, 128);
}

TEST_P(Speculation, ATokenThatNobodyMayDrawInsideDraftsIsAnErrorInItsOwnStep) {
  Request request = MakeRequest(RandomTokens(20, 29), 10, 3);
  request.sampling.ignore_eos = true;
  request.sampling.temperature = 0;
  request.sampling.allowed_token_ids = {300};
  request.sampling.bad_words = {{300, 300, 300, 300, 300}};
  const Completion plain = GenerateOne(*Make(), request);
  ASSERT_EQ(plain.choices[0].finish, sched::FinishReason::kError);
  EngineOptions options;
  options.speculation.tokens = 8;
  auto engine = Make(options);
  auto oracle = std::make_unique<OracleDrafter>(8, 1.0, 1);
  oracle->Learn(request.prompt, 0, std::vector<TokenId>(10, 300));
  engine->AddDrafter(std::move(oracle));
  const Completion drafted = GenerateOne(*engine, request);
  ExpectSame(drafted, plain);
  EXPECT_EQ(drafted.choices[0].error->kind, plain.choices[0].error->kind);
  EXPECT_EQ(drafted.usage.completion_tokens, 4);
}

TEST_P(Speculation, AGrammarHoldsAtEveryDraftedPosition) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Request request =
        MakeRequest(model_->tokenizer().Encode(fmt::format("Animal {}: ", seed), {}), 120, seed);
    request.sampling.constraint = {
        OutputConstraint::Kind::kJsonSchema,
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150}},
            "required": ["name", "age"]})",
        {}};
    if (seed % 2 == 1)
      request.sampling.constraint = {OutputConstraint::Kind::kRegex, "(ab|c)*d", {}};
    if (seed % 4 == 1) request.sampling.repetition_penalty = 1.2f;
    if (seed == 5) request.n = 3;
    requests.push_back(std::move(request));
  }
  const std::vector<Completion> plain = Plain(requests);
  // Without time for masks only what is known already is drawn in passing.
  for (const double budget : {1.0, 0.0}) {
    for (const double right : {0.0, 0.8, 1.0}) {
      EngineOptions options;
      options.speculation.tokens = 6;
      options.mask_budget_s = budget;
      auto engine = Make(options);
      engine->AddDrafter(OracleOf(requests, plain, 6, right));
      ExpectSame(Generate(*engine, requests), plain);
      if (right == 1.0 && budget > 0) {
        EXPECT_GT(engine->speculation().accepted_tokens, 100);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Speculation,
                         ::testing::Values(KvFormatCase{"f16", {}},
                                           KvFormatCase{"kivi2",
                                                        {.key_codec = kernels::KvCodec::kKivi2,
                                                         .value_codec = kernels::KvCodec::kKivi2,
                                                         .residual_tokens = 32}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::engine
