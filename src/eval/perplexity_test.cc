#include "eval/perplexity.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sequence_evaluator.h"
#include "eval/eval_testing.h"
#include "text/read_file.h"

namespace quire::eval {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> TextTokens(const engine::LoadedModel& model, size_t count) {
  std::vector<TokenId> tokens = model.tokenizer().Encode(*text::ReadFile(kTextPath));
  if (count != 0) tokens.resize(count);
  return tokens;
}

PerplexityOptions Options(int context, int stride, int min_context) {
  PerplexityOptions options;
  options.context = context;
  options.stride = stride;
  options.min_context = min_context;
  options.reference = Reference({});
  return options;
}

PerplexityReport MeasureOrDie(ModelForTest& test, std::span<const TokenId> tokens,
                              const PerplexityOptions& options) {
  auto report = MeasurePerplexity(*test.model, tokens, options, test.team, [](const auto&) {});
  if (!report.ok()) base::CheckFailed(__FILE__, __LINE__, report.error().message);
  return std::move(report).value();
}

// Windows as the header states them, token by token.
TEST(PlanWindows, ScoresEveryTokenOnceInTheFirstWindowThatGivesItItsContext) {
  for (int bos = 0; bos < 2; ++bos) {
    for (int context = 4; context < 9; ++context) {
      for (int stride = 1; stride <= context; ++stride) {
        for (int before = 0; before < context - bos; ++before) {
          const int tokens = 31;
          std::set<int64_t> expected;
          for (int64_t first = 0; first < tokens; first += stride) {
            for (int64_t i = first; i < std::min<int64_t>(first + context - bos, tokens); ++i) {
              if (i - first >= before && (bos == 1 || i > first)) expected.insert(i);
            }
          }
          const auto windows = PlanWindows(tokens, bos, Options(context, stride, before));
          ASSERT_TRUE(windows.ok());
          std::set<int64_t> scored;
          for (const Window& window : *windows) {
            EXPECT_LE(window.count + bos, context);
            EXPECT_GE(window.first_scored - window.first, std::max(before, 1 - bos));
            for (int64_t i = window.first_scored; i < window.first + window.count; ++i) {
              EXPECT_TRUE(scored.insert(i).second) << "twice: " << i;
            }
          }
          EXPECT_EQ(scored, expected) << bos << " " << context << " " << stride << " " << before;
        }
      }
    }
  }
}

TEST(PlanWindows, SaysWhatCannotWork) {
  EXPECT_THAT(PlanWindows(40, 1, Options(64, 32, 0)).error().message,
              HasSubstr("has 40 tokens, but a window of --context 64 takes 63"));
  EXPECT_THAT(PlanWindows(400, 1, Options(64, 65, 0)).error().message, HasSubstr("--stride 65"));
  EXPECT_THAT(PlanWindows(400, 1, Options(64, 32, 63)).error().message, HasSubstr("--min-context"));
  EXPECT_TRUE(PlanWindows(63, 1, Options(64, 32, 62)).ok());
}

TEST(Perplexity, EqualsANaiveComputationInWindows) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 200);
  PerplexityOptions options = Options(64, 24, 10);
  options.chunk = 17;
  const PerplexityReport report = MeasureOrDie(test, tokens, options);

  auto evaluator = engine::SequenceEvaluator::Create(
      *test.model, {.kv_format = Reference({}).format, .max_tokens = 64}, test.team);
  ASSERT_TRUE(evaluator.ok());
  double nll = 0;
  int scored = 0;
  std::set<size_t> seen;
  for (size_t first = 0; first < tokens.size(); first += 24) {
    std::vector<TokenId> window = {*test.model->tokenizer().bos()};
    for (size_t i = first; i < std::min(first + 63, tokens.size()); ++i) {
      window.push_back(tokens[i]);
    }
    ASSERT_TRUE((*evaluator)
                    ->Evaluate(window,
                               [&](int position, std::span<const float> logits) {
                                 const size_t target = first + static_cast<size_t>(position);
                                 if (position + 2 > static_cast<int>(window.size())) return;
                                 if (position < 10 || !seen.insert(target).second) return;
                                 double sum = 0;
                                 for (const float logit : logits) sum += std::exp(double{logit});
                                 nll += std::log(sum) - logits[window[position + 1]];
                                 ++scored;
                               })
                    .ok());
  }
  EXPECT_EQ(report.scored_tokens, scored);
  EXPECT_TRUE(report.bos);
  EXPECT_NEAR(report.scores[0].perplexity, std::exp(nll / scored), 1e-9);
}

TEST(Perplexity, F32AgainstItselfDiffersInNothing) {
  ModelForTest test(kDraftPath);
  PerplexityOptions options = Options(128, 64, 0);
  KvVariant again = options.reference;
  again.name = "again";
  again.format.block_size = 16;
  options.variants = {again};
  const PerplexityReport report = MeasureOrDie(test, TextTokens(*test.model, 400), options);
  ASSERT_EQ(report.scores.size(), 2u);
  EXPECT_EQ(report.scores[1].perplexity, report.scores[0].perplexity);
  EXPECT_EQ(report.scores[1].kl_mean, 0);
  EXPECT_EQ(report.scores[1].kl_p99, 0);
  EXPECT_EQ(report.scores[1].top1_agreement, 1);
  EXPECT_EQ(report.scores[1].rise, 0);
  EXPECT_EQ(report.scores[1].rise_error, 0);
}

TEST(Perplexity, CodecsAreAsFarFromF32AsTheirBits) {
  ModelForTest test(kDraftPath);
  PerplexityOptions options = Options(128, 64, 0);
  options.variants = {VariantOf(kernels::KvCodec::kF16), VariantOf(kernels::KvCodec::kBf16)};
  const PerplexityReport report = MeasureOrDie(test, TextTokens(*test.model, 1000), options);
  const VariantScore& f16 = report.scores[1];
  const VariantScore& bf16 = report.scores[2];
  EXPECT_GT(f16.kl_mean, 0);
  EXPECT_GT(bf16.kl_mean, 4 * f16.kl_mean);  // three bits fewer
  EXPECT_LT(bf16.kl_mean, 1e-4);
  EXPECT_GT(f16.kl_p99, f16.kl_mean);
  EXPECT_GT(f16.top1_agreement, 0.99);
  EXPECT_NEAR(f16.rise, f16.perplexity / report.scores[0].perplexity - 1, 1e-9);
  EXPECT_GT(f16.rise_error, 0);
  EXPECT_EQ(f16.cost.bits_per_value, 16);
  EXPECT_EQ(report.scores[0].cost.bytes_per_token, 2 * f16.cost.bytes_per_token);
}

// models/golden.json has both, computed by other programs from the same weights.
TEST(Perplexity, OfTheDraftModelIsWhatOtherProgramsFound) {
  ModelForTest test(kDraftPath);
  const std::vector<TokenId> tokens = TextTokens(*test.model, 0);
  const PerplexityReport whole = MeasureOrDie(test, tokens, Options(1025, 1024, 0));
  EXPECT_EQ(whole.scored_tokens, 39670);
  EXPECT_NEAR(whole.scores[0].perplexity, 62.62556, 1e-3);
  const PerplexityReport halves = MeasureOrDie(test, tokens, Options(512, 512, 256));
  EXPECT_EQ(halves.scored_tokens, 77 * 255);
  EXPECT_NEAR(halves.scores[0].perplexity, 58.57332, 1e-3);
}

TEST(Perplexity, RefusesAWindowLongerThanTheModelsContext) {
  ModelForTest test(kDraftPath);
  const auto report = MeasurePerplexity(*test.model, TextTokens(*test.model, 2000),
                                        Options(1026, 64, 0), test.team, [](const auto&) {});
  EXPECT_THAT(report.error().message, HasSubstr("--context is 1026"));
}

}  // namespace
}  // namespace quire::eval
