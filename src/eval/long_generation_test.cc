#include "eval/long_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_testing.h"
#include "text/read_file.h"

namespace quire::eval {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::vector<TokenId>> PromptsOrDie(const ModelForTest& test, int count, int length) {
  auto prompts = CutPrompts(test.model->tokenizer(), *text::ReadFile(kTextPath), count, length);
  if (!prompts.ok()) base::CheckFailed(__FILE__, __LINE__, prompts.error().message);
  return std::move(prompts).value();
}

LongGenerationReport MeasureOrDie(ModelForTest& test, std::span<const std::vector<TokenId>> prompts,
                                  const LongGenerationOptions& options) {
  auto report = MeasureLongGeneration(*test.model, prompts, options, test.team, [](int64_t) {});
  if (!report.ok()) base::CheckFailed(__FILE__, __LINE__, report.error().message);
  return std::move(report).value();
}

TEST(CutPrompts, TakesPiecesSpreadOverTheText) {
  const ModelForTest test(kDraftPath);
  const auto tokens = test.model->tokenizer().Encode(*text::ReadFile(kTextPath));
  const auto prompts = PromptsOrDie(test, 4, 10);
  ASSERT_THAT(prompts, SizeIs(4));
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_THAT(prompts[i], SizeIs(10));
    EXPECT_EQ(prompts[i][0], *test.model->tokenizer().bos());
    const size_t start = (tokens.size() - 9) * i / 4;
    EXPECT_TRUE(std::equal(prompts[i].begin() + 1, prompts[i].end(), tokens.begin() + start));
  }
  EXPECT_THAT(CutPrompts(test.model->tokenizer(), "Too short", 4, 100).error().message,
              HasSubstr("a prompt takes 99"));
}

// Decoding in a batch says what one pass over the whole text says: the evaluator's numbers and the
// engine's are the same.
TEST(LongGeneration, F32AgainstItselfIsIdenticalAndAgreesWithOnePassOverItsText) {
  ModelForTest test(kDraftPath);
  LongGenerationOptions options{.tokens = 60, .reference = Reference({}), .variants = {}};
  options.variants = {Reference({})};
  const LongGenerationReport report = MeasureOrDie(test, PromptsOrDie(test, 3, 20), options);
  ASSERT_THAT(report.scores, SizeIs(2));
  ASSERT_THAT(report.continuations, SizeIs(3));
  EXPECT_THAT(report.continuations, Each(SizeIs(60)));
  for (const LongGenerationScore& score : report.scores) {
    EXPECT_THAT(score.equal_tokens, Each(60));
    EXPECT_EQ(score.identical(), 3);
    EXPECT_EQ(score.mean_equal(), 60);
    EXPECT_EQ(score.agreement, 1);
    EXPECT_EQ(score.forced_agreement, 1);
  }
}

TEST(LongGeneration, ADivergenceIsCountedFromTheFirstTokenThatDiffers) {
  ModelForTest test(kDraftPath);
  // In place of a coarse codec: a reference that is coarser than what is compared with it.
  LongGenerationOptions options{.tokens = 250, .reference = Reference({}), .variants = {}};
  options.reference = VariantOf(kernels::KvCodec::kBf16);
  options.variants = {VariantOf(kernels::KvCodec::kF32), VariantOf(kernels::KvCodec::kBf16)};
  const LongGenerationReport report = MeasureOrDie(test, PromptsOrDie(test, 8, 20), options);
  const LongGenerationScore& f32 = report.scores[1];
  ASSERT_THAT(f32.equal_tokens, SizeIs(8));
  EXPECT_LT(f32.identical(), 8) << "no prompt told the two apart; take more tokens";
  EXPECT_LT(f32.forced_agreement, 1);
  EXPECT_GT(f32.forced_agreement, 0.98);
  EXPECT_GE(f32.agreement, f32.mean_equal() / 250);
  EXPECT_EQ(report.scores[2].identical(), 8);

  const auto f32_alone = MeasureOrDie(test, PromptsOrDie(test, 8, 20),
                                      {.tokens = 250, .reference = Reference({}), .variants = {}});
  for (size_t i = 0; i < 8; ++i) {
    const auto& mine = f32_alone.continuations[i];
    const auto& other = report.continuations[i];
    int equal = 0;
    while (equal < 250 && mine[equal] == other[equal]) ++equal;
    EXPECT_EQ(f32.equal_tokens[i], equal);
  }
}

TEST(LongGeneration, RefusesMoreThanTheModelsContext) {
  ModelForTest test(kDraftPath);
  const auto prompts = PromptsOrDie(test, 2, 600);
  const auto report = MeasureLongGeneration(
      *test.model, prompts, {.tokens = 512, .reference = Reference({}), .variants = {}}, test.team,
      [](int64_t) {});
  EXPECT_THAT(report.error().message, HasSubstr("a prompt of 600 tokens and 512 more"));
}

}  // namespace
}  // namespace quire::eval
