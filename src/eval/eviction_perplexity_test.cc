#include "eval/eviction_perplexity.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_testing.h"
#include "eval/perplexity.h"
#include "eval/run_requests.h"
#include "text/read_file.h"

namespace quire::eval {
namespace {

using kernels::KvCodec;
using ::testing::HasSubstr;

std::vector<TokenId> TextTokens(const engine::LoadedModel& model, size_t count) {
  std::vector<TokenId> tokens = model.tokenizer().Encode(*text::ReadFile(kTextPath));
  tokens.resize(count);
  return tokens;
}

EvictionVariant Evicting(kv::EvictionPolicy policy, int budget) {
  EvictionVariant variant{.budget = fmt::format("{}", budget)};
  variant.options.policy = policy;
  variant.options.budget_tokens = budget;
  return variant;
}

std::vector<EvictionVariant> EveryPolicy(int budget) {
  std::vector<EvictionVariant> variants;
  for (const kv::EvictionPolicy policy : kv::kEvictionPolicies) {
    if (policy != kv::EvictionPolicy::kNone) variants.push_back(Evicting(policy, budget));
  }
  return variants;
}

EvictionPerplexityOptions Options(int context, int prompt, int stride) {
  EvictionPerplexityOptions options;
  options.context = context;
  options.prompt = prompt;
  options.stride = stride;
  options.codecs = {VariantOf(KvCodec::kF16)};
  return options;
}

EvictionPerplexityReport MeasureOrDie(ModelForTest& test, std::span<const TokenId> tokens,
                                      const EvictionPerplexityOptions& options) {
  auto report =
      MeasureEvictionPerplexity(*test.model, tokens, options, test.team, [](int64_t, int64_t) {});
  if (!report.ok()) base::CheckFailed(__FILE__, __LINE__, report.error().message);
  return std::move(report).value();
}

// A text said token by token is judged as one that is read, bit for bit.
TEST(ScoringRequest, GivesTheLogProbabilitiesOfAPrompt) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 200);
  for (const KvCodec codec : {KvCodec::kF16, KvCodec::kInt8, KvCodec::kKivi2}) {
    SCOPED_TRACE(Name(codec));
    engine::EngineOptions options;
    options.kv_format = VariantOf(codec).format;
    const auto engine = testing::MakeEngineOrDie(*test.model, options, test.team);
    sched::Request whole;
    whole.prompt = tokens;
    whole.sampling.max_tokens = 0;
    whole.sampling.prompt_logprobs = 0;
    const engine::Completion read = testing::GenerateOne(*engine, whole);
    const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + 70);
    const engine::Completion said =
        testing::GenerateOne(*engine, ScoringRequest(prompt, std::span(tokens).subspan(70)));
    const auto& logprobs = said.choices[0].logprobs;
    ASSERT_EQ(logprobs.size(), 130u);
    EXPECT_EQ(KeptTokens(said), 199);
    for (size_t i = 0; i < logprobs.size(); ++i) {
      EXPECT_EQ(logprobs[i].token, tokens[70 + i]);
      ASSERT_EQ(logprobs[i].logprob, read.prompt_logprobs[70 + i]->logprob) << i;
    }
  }
}

TEST(EvictionPerplexity, OfTheFullCacheIsThatOfAnEvaluationInWindows) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 700);
  const EvictionPerplexityReport report = MeasureOrDie(test, tokens, Options(128, 48, 60));
  PerplexityOptions plain;
  plain.context = 128;
  plain.stride = 60;
  plain.min_context = 47;
  plain.reference = VariantOf(KvCodec::kF16);
  const auto expected =
      MeasurePerplexity(*test.model, tokens, plain, test.team, [](const auto&) {});
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(report.scored_tokens, expected->scored_tokens);
  EXPECT_EQ(report.windows, expected->windows);
  EXPECT_TRUE(report.bos);
  // The one has log probabilities in f32, the other in f64.
  EXPECT_NEAR(report.scores[0].mean_nll, expected->scores[0].mean_nll, 1e-6);
}

TEST(EvictionPerplexity, WithABudgetAboveTheWindowIsThatOfTheFullCacheBitForBit) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 500);
  EvictionPerplexityOptions options = Options(128, 64, 64);
  options.codecs = {VariantOf(KvCodec::kF16), VariantOf(KvCodec::kInt8),
                    VariantOf(KvCodec::kKivi2)};
  // Of kivi2, whose tokens go 128 at a time, a budget has to be a multiple of that.
  options.evictions = EveryPolicy(128);
  const EvictionPerplexityReport report = MeasureOrDie(test, tokens, options);
  ASSERT_EQ(report.scores.size(), 15u);
  for (size_t i = 0; i < report.scores.size(); ++i) {
    const EvictionScore& full = report.scores[i / 5 * 5];
    SCOPED_TRACE(fmt::format("{} {}", full.variant.name, i % 5));
    EXPECT_EQ(full.variant.eviction.options.evicts(), false);
    EXPECT_EQ(report.scores[i].mean_nll, full.mean_nll);
    EXPECT_EQ(report.scores[i].rise, 0);
    EXPECT_EQ(report.scores[i].rise_error, 0);
    EXPECT_EQ(report.scores[i].tokens_kept, full.tokens_kept);
  }
}

TEST(EvictionPerplexity, RisesAsTheBudgetFallsAndTellsWhatWasKept) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 2000);
  EvictionPerplexityOptions options = Options(256, 128, 128);
  for (const int budget : {16, 64}) {
    for (EvictionVariant& variant : EveryPolicy(budget)) {
      variant.options.recent = budget / 2;
      options.evictions.push_back(std::move(variant));
    }
  }
  const EvictionPerplexityReport report = MeasureOrDie(test, tokens, options);
  ASSERT_EQ(report.scores.size(), 9u);
  const double full = report.scores[0].perplexity;
  for (size_t policy = 1; policy < 5; ++policy) {
    const EvictionScore& tight = report.scores[policy];
    const EvictionScore& wide = report.scores[policy + 4];
    SCOPED_TRACE(kv::NameOf(tight.variant.eviction.options.policy));
    EXPECT_NEAR(tight.tokens_kept, 17, 0.1);  // the budget, and the newest token
    EXPECT_NEAR(wide.tokens_kept, 65, 0.1);
    EXPECT_GT(tight.perplexity, 1.005 * full);
    EXPECT_GT(tight.rise, wide.rise);
    EXPECT_GT(tight.rise_error, 0);
    EXPECT_NEAR(tight.rise, tight.perplexity / full - 1, 1e-9);
  }
}

TEST(EvictionPerplexity, DependsOnNoBatch) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 400);
  EvictionPerplexityOptions options = Options(96, 48, 48);
  options.evictions = EveryPolicy(20);
  const EvictionPerplexityReport together = MeasureOrDie(test, tokens, options);
  options.batch = 1;
  const EvictionPerplexityReport alone = MeasureOrDie(test, tokens, options);
  for (size_t i = 0; i < alone.scores.size(); ++i) {
    EXPECT_EQ(together.scores[i].mean_nll, alone.scores[i].mean_nll) << i;
  }
}

TEST(EvictionPerplexity, SaysWhatCannotWork) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 2000);
  const auto refused = [&](const EvictionPerplexityOptions& options) {
    const auto report =
        MeasureEvictionPerplexity(*test.model, tokens, options, test.team, [](int64_t, int64_t) {});
    return report.ok() ? std::string() : report.error().message;
  };
  EXPECT_THAT(refused(Options(1025, 500, 500)), HasSubstr("--context is 1025"));
  EXPECT_THAT(refused(Options(64, 64, 32)), HasSubstr("--prompt is 64 tokens of windows of 64"));
  EXPECT_THAT(refused(Options(64, 32, 65)), HasSubstr("--stride 65"));
  EvictionPerplexityOptions options = Options(64, 32, 32);
  options.evictions = EveryPolicy(1024);
  EXPECT_THAT(refused(options), HasSubstr("1024 tokens, needs room for 1025"));
  options.evictions = EveryPolicy(4);  // as many as the sinks
  EXPECT_THAT(refused(options), HasSubstr("does not hold"));
}

}  // namespace
}  // namespace quire::eval
