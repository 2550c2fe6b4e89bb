#include "eval/streaming.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_testing.h"
#include "eval/eviction_perplexity.h"
#include "eval/perplexity.h"
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

StreamingOptions Options(int budget, std::vector<int> sinks, int recomputed) {
  return {.budget = budget,
          .sinks = std::move(sinks),
          .recomputed = recomputed,
          .codecs = {VariantOf(KvCodec::kF16)}};
}

StreamingReport MeasureOrDie(ModelForTest& test, std::span<const TokenId> tokens,
                             const StreamingOptions& options) {
  auto report = MeasureStreaming(*test.model, tokens, options, test.team, [](int64_t, int64_t) {});
  if (!report.ok()) base::CheckFailed(__FILE__, __LINE__, report.error().message);
  return std::move(report).value();
}

TEST(Streaming, OfATextWithinTheContextIsThatOfAWindowThatEvicts) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 199);
  const StreamingReport report = MeasureOrDie(test, tokens, Options(50, {3}, 0));
  EvictionPerplexityOptions windows;
  windows.context = windows.stride = 200;
  windows.prompt = 50;
  windows.codecs = {VariantOf(KvCodec::kF16)};
  windows.evictions = {report.scores[0].variant.eviction};
  const auto expected =
      MeasureEvictionPerplexity(*test.model, tokens, windows, test.team, [](int64_t, int64_t) {});
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(report.scored_tokens, 150);
  EXPECT_EQ(report.scored_tokens, expected->scored_tokens);
  EXPECT_EQ(report.scores[0].perplexity, expected->scores[1].perplexity);
  EXPECT_EQ(report.scores[0].tokens_kept, 51);
  EXPECT_NE(report.scores[0].perplexity, expected->scores[0].perplexity);
}

TEST(Streaming, AfreshIsWindowsThatMoveByOneToken) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 100);
  const StreamingReport report = MeasureOrDie(test, tokens, Options(40, {}, 61));
  PerplexityOptions windows;
  windows.context = 41;
  windows.stride = 1;
  windows.min_context = 39;
  windows.reference = VariantOf(KvCodec::kF16);
  const auto expected =
      MeasurePerplexity(*test.model, tokens, windows, test.team, [](const auto&) {});
  ASSERT_TRUE(expected.ok());
  ASSERT_EQ(report.scores.size(), 1u);
  EXPECT_TRUE(report.scores[0].afresh());
  EXPECT_EQ(report.scored_tokens, 61);
  EXPECT_EQ(expected->scored_tokens, 61);
  EXPECT_NEAR(std::log(report.scores[0].sampled_perplexity), expected->scores[0].mean_nll, 1e-6);
  EXPECT_EQ(report.scores[0].sampled_rise, 0);
}

TEST(Streaming, GoesOnBeyondTheContextWithEveryCodec) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 2000);
  StreamingOptions options = Options(128, {0, 4}, 100);
  options.tokens = 1400;
  options.codecs = {VariantOf(KvCodec::kF16), VariantOf(KvCodec::kKivi2)};
  int64_t done = 0;
  const auto report =
      MeasureStreaming(*test.model, tokens, options, test.team, [&](int64_t now, int64_t total) {
        done = now;
        EXPECT_EQ(total, 2 * (2 * 1400 + 100));
      });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(done, 2 * (2 * 1400 + 100));
  EXPECT_EQ(report->scored_tokens, 1400);
  ASSERT_EQ(report->scores.size(), 6u);
  for (size_t codec = 0; codec < 2; ++codec) {
    const StreamingScore& none = report->scores[3 * codec];
    const StreamingScore& four = report->scores[3 * codec + 1];
    const StreamingScore& afresh = report->scores[3 * codec + 2];
    SCOPED_TRACE(four.variant.name);
    EXPECT_NEAR(four.sampled_rise, four.sampled_perplexity / afresh.sampled_perplexity - 1, 1e-9);
    EXPECT_LT(std::fabs(four.sampled_rise), 0.1);
    EXPECT_GT(four.sampled_rise_error, 0);
    if (codec == 0) {
      EXPECT_GT(none.perplexity, four.perplexity);
    } else {  // kivi2 keeps four sinks of its own
      EXPECT_EQ(none.perplexity, four.perplexity);
    }
  }
  EXPECT_EQ(report->scores[0].tokens_kept, 129);
}

TEST(Streaming, SaysWhatCannotWork) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 300);
  const auto refused = [&](const StreamingOptions& options) {
    const auto report =
        MeasureStreaming(*test.model, tokens, options, test.team, [](int64_t, int64_t) {});
    return report.ok() ? std::string() : report.error().message;
  };
  EXPECT_THAT(refused(Options(1024, {4}, 0)), HasSubstr("the model's context of 1024"));
  EXPECT_THAT(refused(Options(301, {4}, 0)), HasSubstr("a budget of 301 holds"));
  EXPECT_THAT(refused(Options(300, {4}, 2)), HasSubstr("2 tokens are to be computed afresh and 1"));
  EXPECT_THAT(refused(Options(20, {20}, 0)), HasSubstr("does not hold the 20 first"));
  EXPECT_EQ(refused(Options(300, {4}, 1)), "");
}

}  // namespace
}  // namespace quire::eval
