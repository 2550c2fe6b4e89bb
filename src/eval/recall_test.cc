#include "eval/recall.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sequence_evaluator.h"
#include "eval/eval_testing.h"
#include "eval/logit_metrics.h"
#include "text/read_file.h"

namespace quire::eval {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabSize = 4096;

std::vector<RecallCase> ProbeCases() {
  auto cases = ParseRecallCases(*text::ReadFile("models/probe/cases.jsonl"), "", kVocabSize);
  if (!cases.ok()) base::CheckFailed(__FILE__, __LINE__, cases.error().message);
  return std::move(cases).value();
}

std::vector<RecallScore> MeasureOrDie(ModelForTest& test, std::span<const RecallCase> cases,
                                      const RecallOptions& options) {
  auto scores = MeasureRecall(*test.model, cases, options, test.team, [](int64_t) {});
  if (!scores.ok()) base::CheckFailed(__FILE__, __LINE__, scores.error().message);
  return std::move(scores).value();
}

TEST(RecallCases, AreTheSameAfterWritingAndReading) {
  const std::vector<RecallCase> cases = ProbeCases();
  EXPECT_EQ(cases.size(), 64u);
  EXPECT_EQ(*ParseRecallCases(FormatRecallCases(cases), "", kVocabSize), cases);
}

struct BadLine {
  const char* line;
  const char* says;
};

TEST(RecallCases, AMalformedLineIsNamedInOneSentence) {
  for (const BadLine& bad :
       {BadLine{"{", "it is no JSON"}, BadLine{"[1]", "\"context\""},
        BadLine{R"({"context":[1,2,3]})", "\"questions\""},
        BadLine{R"({"context":[],"questions":[[1,2,0]]})", "\"context\""},
        BadLine{R"({"context":"text","questions":[[1,2,0]]})", "\"context\""},
        BadLine{R"({"context":[1,4096],"questions":[[1,2,0]]})", "no token id"},
        BadLine{R"({"context":[1,-1],"questions":[[1,2,0]]})", "no token id"},
        BadLine{R"({"context":[1,2],"questions":[[1,2]]})", "[key id, answer id, position]"},
        BadLine{R"({"context":[1,2],"questions":[7]})", "[key id, answer id, position]"},
        BadLine{R"({"context":[1,2],"questions":[[1,4096,0]]})", "outside the vocabulary"},
        BadLine{R"({"context":[1,2],"questions":[[1,2,1]]})", "does not have 1 2"},
        BadLine{R"({"context":[1,2],"questions":[[1,2,-1]]})", "does not have 1 2"},
        BadLine{R"({"context":[1,3],"questions":[[1,2,0]]})", "does not have 1 2"}}) {
    const std::string text = std::string("{\"context\":[1,2],\"questions\":[[1,2,0]]}\n\n") +
                             bad.line + "\n{\"context\":[1,2],\"questions\":[[1,2,0]]}\n";
    const auto cases = ParseRecallCases(text, "my.jsonl", kVocabSize);
    ASSERT_FALSE(cases.ok()) << bad.line;
    EXPECT_THAT(cases.error().message, HasSubstr("line 3 of 'my.jsonl'")) << bad.line;
    EXPECT_THAT(cases.error().message, HasSubstr(bad.says));
  }
  EXPECT_THAT(ParseRecallCases("\n \n", "my.jsonl", kVocabSize).error().message,
              HasSubstr("'my.jsonl' has no recall cases"));
}

TEST(RecallCases, MadeOnesHideEveryFactOnceAtAllDepths) {
  ModelForTest test(kProbePath);
  const text::Tokenizer& tokenizer = test.model->tokenizer();
  const std::string filler = *text::ReadFile(kTextPath);
  const RecallMaker maker{.lengths = {100, 400}, .cases = 5, .facts = 6, .seed = 3};
  const auto cases = MakeRecallCases(tokenizer, filler, maker);
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  ASSERT_EQ(cases->size(), 10u);
  for (size_t i = 0; i < cases->size(); ++i) {
    const RecallCase& one = (*cases)[i];
    EXPECT_EQ(one.context.size(), i < 5 ? 100u : 400u);
    EXPECT_EQ(one.context.front(), *tokenizer.bos());
    ASSERT_EQ(one.questions.size(), 6u);
    for (const RecallQuestion& question : one.questions) {
      EXPECT_EQ(std::ranges::count(one.context, question.key), 1);
      EXPECT_EQ(std::ranges::count(one.context, question.answer), 1);
      EXPECT_EQ(one.context[question.position + 1], question.answer);
      EXPECT_EQ(tokenizer.TokenBytes(one.context[question.position + 2]), ".");
    }
    const double length = static_cast<double>(one.context.size());
    for (int depth = 0; depth < 6; ++depth) {
      EXPECT_NEAR(one.questions[depth].position, length * (depth + 0.5) / 6, 4);
    }
  }
  EXPECT_EQ(*MakeRecallCases(tokenizer, filler, maker), *cases);
  RecallMaker other = maker;
  other.seed = 4;
  EXPECT_NE(*MakeRecallCases(tokenizer, filler, other), *cases);
  EXPECT_EQ(*ParseRecallCases(FormatRecallCases(*cases), "", kVocabSize), *cases);
}

TEST(RecallCases, MadeLikeOthersUseTheirKeysAsKeysAndTheirAnswersAsAnswers) {
  ModelForTest test(kProbePath);
  const std::vector<RecallCase> like = ProbeCases();
  std::set<TokenId> keys, answers;
  for (const RecallCase& one : like) {
    for (const RecallQuestion& question : one.questions) {
      keys.insert(question.key);
      answers.insert(question.answer);
    }
  }
  const auto cases =
      MakeRecallCases(test.model->tokenizer(), *text::ReadFile(kTextPath),
                      {.lengths = {200, 800}, .cases = 4, .facts = 6, .seed = 1, .like = like});
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  for (const RecallCase& one : *cases) {
    for (const RecallQuestion& question : one.questions) {
      EXPECT_TRUE(keys.contains(question.key));
      EXPECT_TRUE(answers.contains(question.answer));
    }
  }
  // The model was trained for these words: it knows most answers, where chance is 1 in 4096.
  const auto scores = MeasureOrDie(test, *cases, {.variants = {Reference({})}});
  EXPECT_GT(scores[0].total.accuracy(), 0.85);
}

TEST(RecallCases, SaysWhyNoneCanBeMade) {
  ModelForTest test(kProbePath);
  const text::Tokenizer& tokenizer = test.model->tokenizer();
  const RecallMaker maker{.lengths = {100}, .cases = 1, .facts = 6};
  EXPECT_THAT(MakeRecallCases(tokenizer, "A short text.", maker).error().message,
              HasSubstr("filler text has"));
  EXPECT_THAT(MakeRecallCases(tokenizer, *text::ReadFile(kTextPath),
                              {.lengths = {40}, .cases = 1, .facts = 10})
                  .error()
                  .message,
              HasSubstr("no room for 10 facts"));
  EXPECT_THAT(MakeRecallCases(tokenizer, *text::ReadFile(kTextPath),
                              {.lengths = {1000},
                               .cases = 1,
                               .facts = 3,
                               .seed = 1,
                               .like = {{.context = {5, 6}, .questions = {{5, 6, 0}}}}})
                  .error()
                  .message,
              HasSubstr("fewer than the 3 of --facts"));
}

TEST(Recall, AnAnswersLikelihoodIsThatOfTheModelsLogits) {
  ModelForTest test(kProbePath);
  const std::vector<RecallCase> all = ProbeCases();
  const std::span<const RecallCase> cases = std::span(all).subspan(15, 3);  // of two lengths
  const KvVariant f16 = VariantOf(kernels::KvCodec::kF16);
  const auto scores = MeasureOrDie(test, cases, {.variants = {f16}});

  auto evaluator = engine::SequenceEvaluator::Create(
      *test.model, {.kv_format = f16.format, .max_tokens = 600}, test.team);
  ASSERT_TRUE(evaluator.ok());
  RecallTally naive;
  for (const RecallCase& one : cases) {
    for (const RecallQuestion& question : one.questions) {
      std::vector<TokenId> tokens = one.context;
      tokens.push_back(question.key);
      std::vector<float> last;
      ASSERT_TRUE((*evaluator)
                      ->Evaluate(tokens,
                                 [&](int, std::span<const float> logits) {
                                   last.assign(logits.begin(), logits.end());
                                 })
                      .ok());
      const double nll = NegativeLogLikelihood(last, LogSumExp(last), question.answer);
      naive.Add({1, BestToken(last) == question.answer ? 1 : 0, nll});
    }
  }
  EXPECT_EQ(scores[0].total.asked, naive.asked);
  EXPECT_EQ(scores[0].total.right, naive.right);
  EXPECT_NEAR(scores[0].total.nll_sum, naive.nll_sum, 1e-5 * naive.asked);
}

// Of the probe model's page: what llama.cpp measured on the first five questions of every context.
TEST(Recall, OfTheProbeModelIsWhatAnotherEngineFound) {
  ModelForTest test(kProbePath);
  const auto cases = ProbeCases();
  const RecallOptions options{.variants = {Reference({})}, .max_questions = 5};
  EXPECT_EQ(QuestionCount(cases, options), 320);
  const auto scores = MeasureOrDie(test, cases, options);
  EXPECT_EQ(scores[0].total.asked, 320);
  EXPECT_NEAR(scores[0].total.right, 313, 1);
  EXPECT_NEAR(scores[0].total.mean_nll(), 0.0961, 5e-4);
}

TEST(Recall, LengthsAndDepthsAddUpToTheTotal) {
  ModelForTest test(kProbePath);
  const auto all = ProbeCases();
  const auto cases = std::span(all).subspan(14, 4);
  int64_t answered = 0;
  const auto scores = MeasureRecall(*test.model, cases, {.variants = {Reference({})}}, test.team,
                                    [&](int64_t done) { answered = done; });
  ASSERT_TRUE(scores.ok());
  const RecallScore& score = scores->front();
  EXPECT_EQ(answered, score.total.asked);
  ASSERT_EQ(score.lengths.size(), 2u);
  EXPECT_EQ(score.lengths[0].tokens, 250);
  EXPECT_EQ(score.lengths[1].tokens, 500);
  RecallTally lengths, depths;
  for (const RecallLength& length : score.lengths) {
    lengths.Add(length.total);
    for (const RecallTally& tally : length.by_depth) depths.Add(tally);
  }
  EXPECT_EQ(lengths.asked, score.total.asked);
  EXPECT_EQ(depths.asked, score.total.asked);
  EXPECT_EQ(depths.right, score.total.right);
  EXPECT_NEAR(depths.nll_sum, score.total.nll_sum, 1e-9);
  EXPECT_GT(score.lengths[0].by_depth[4].asked, 0);
}

KvVariant Evicting(kv::EvictionPolicy policy, double budget_ratio) {
  KvVariant variant = VariantOf(kernels::KvCodec::kF16);
  variant.eviction.options.policy = policy;
  variant.eviction.options.budget_ratio = budget_ratio;
  return variant;
}

TEST(Recall, OfAWindowEndsWhereTheWindowBegins) {
  ModelForTest test(kProbePath);
  const auto all = ProbeCases();
  const auto cases = std::span(all).first(6);  // of 250 tokens
  const auto scores = MeasureOrDie(test, cases,
                                   {.variants = {Evicting(kv::EvictionPolicy::kNone, 0.5),
                                                 Evicting(kv::EvictionPolicy::kStreaming, 0.5)}});
  EXPECT_EQ(scores[0].tokens_kept, 251);  // context and question
  EXPECT_EQ(scores[1].tokens_kept, 126);  // half of the context, and the newest token
  const RecallLength& window = scores[1].lengths[0];
  EXPECT_GE(window.by_depth[4].asked, 10);
  EXPECT_GT(window.by_depth[4].accuracy(), 0.8);
  EXPECT_GE(window.by_depth[0].asked, 10);
  EXPECT_LT(window.by_depth[0].accuracy(), 0.1);
  EXPECT_GT(scores[0].lengths[0].by_depth[0].accuracy(), 0.8);
}

TEST(Recall, WithABudgetForTheWholeContextIsThatOfTheFullCacheBitForBit) {
  ModelForTest test(kProbePath);
  const auto all = ProbeCases();
  const auto cases = std::span(all).first(1);
  RecallOptions options;
  for (const kv::EvictionPolicy policy : kv::kEvictionPolicies) {
    options.variants.push_back(Evicting(policy, 1));
    options.variants.back().eviction.options.budget_tokens = 300;
  }
  const auto scores = MeasureOrDie(test, cases, options);
  for (const RecallScore& score : scores) {
    EXPECT_EQ(score.total.nll_sum, scores[0].total.nll_sum);
    EXPECT_EQ(score.tokens_kept, scores[0].tokens_kept);
  }
}

TEST(Recall, RefusesContextsLongerThanTheModels) {
  ModelForTest test(kProbePath);
  RecallCase one{.context = std::vector<TokenId>(1023, 5), .questions = {{5, 5, 0}}};
  const auto scores = MeasureRecall(*test.model, {&one, 1}, {.variants = {Reference({})}},
                                    test.team, [](int64_t) {});
  EXPECT_THAT(scores.error().message, HasSubstr("a context of 1023 tokens"));
}

}  // namespace
}  // namespace quire::eval
