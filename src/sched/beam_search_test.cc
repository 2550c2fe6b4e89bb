#include "sched/beam_search.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::sched {
namespace {

using EarlyStopping = BeamSearchParams::EarlyStopping;
constexpr TokenId kEnd = 0;
constexpr int kVocabulary = 6;

float LogProb(const std::vector<TokenId>& output, TokenId token) {
  uint64_t hash = 99;
  for (TokenId t : output) hash = base::Mix64(hash ^ static_cast<uint64_t>(t + 1));
  double total = 0.0;
  double own = 0.0;
  for (TokenId t = 0; t < kVocabulary; ++t) {
    const double weight =
        0.05 + static_cast<double>(base::Mix64(hash ^ (t + 77)) >> 40) * 0x1.0p-24;
    total += weight;
    if (t == token) own = weight;
  }
  return static_cast<float>(std::log(own / total));
}

std::vector<TokenLogprob> Best(const std::vector<TokenId>& output, int count) {
  std::vector<TokenLogprob> all;
  for (TokenId t = 0; t < kVocabulary; ++t) all.push_back({t, LogProb(output, t)});
  std::ranges::stable_sort(all, std::ranges::greater{}, &TokenLogprob::logprob);
  all.resize(std::min<size_t>(all.size(), count));
  return all;
}

BeamSearch::Options MakeOptions(int width, int max_tokens, BeamSearchParams params = {}) {
  return {.params = params,
          .width = width,
          .max_tokens = max_tokens,
          .min_tokens = 0,
          .end_ids = {kEnd}};
}

std::vector<BeamHypothesis> Search(const BeamSearch::Options& options, int* steps = nullptr) {
  BeamSearch search(options);
  std::vector<std::vector<TokenId>> beams = {{}};
  while (!search.done()) {
    if (steps) ++*steps;
    std::vector<std::vector<TokenLogprob>> candidates;
    for (const auto& beam : beams) candidates.push_back(Best(beam, 2 * options.width));
    std::vector<BeamSearch::Beam> input;
    for (size_t i = 0; i < beams.size(); ++i) input.push_back({beams[i], candidates[i]});
    std::vector<std::vector<TokenId>> next;
    for (const auto& survivor : search.Advance(input)) {
      next.push_back(beams[survivor.parent]);
      next.back().push_back(survivor.token);
    }
    beams = std::move(next);
  }
  const auto found = search.hypotheses();
  return {found.begin(), found.end()};
}

// Every output up to max_tokens, scored.
void Enumerate(std::vector<TokenId>& output, double sum, const BeamSearch::Options& options,
               std::vector<BeamHypothesis>& all) {
  const double penalty = options.params.length_penalty;
  for (TokenId t = 0; t < kVocabulary; ++t) {
    const double next = sum + static_cast<double>(LogProb(output, t));
    const int length = static_cast<int>(output.size()) + 1;
    const double score = next / std::pow(length, penalty);
    if (t == kEnd) {
      all.push_back({output, next, score, FinishReason::kStop});
      continue;
    }
    output.push_back(t);
    if (length == options.max_tokens) {
      all.push_back({output, next, score, FinishReason::kLength});
    } else {
      Enumerate(output, next, options, all);
    }
    output.pop_back();
  }
}

TEST(BeamSearch, ABeamWideEnoughFindsTheBestOfAllOutputs) {
  for (float penalty : {0.0f, 0.5f, 1.0f, 2.0f}) {
    BeamSearch::Options options = MakeOptions(200, 4, {penalty, EarlyStopping::kNever});
    std::vector<BeamHypothesis> all;
    std::vector<TokenId> output;
    Enumerate(output, 0.0, options, all);
    std::ranges::stable_sort(all, std::ranges::greater{}, &BeamHypothesis::score);
    const auto found = Search(options);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(found[i].tokens, all[i].tokens) << penalty << " " << i;
      EXPECT_EQ(found[i].score, all[i].score);
    }
  }
}

TEST(BeamSearch, WidthOneIsGreedy) {
  const auto found = Search(MakeOptions(1, 8));
  ASSERT_EQ(found.size(), 1u);
  std::vector<TokenId> greedy;
  while (greedy.size() < 8) {
    const TokenId next = Best(greedy, 1)[0].token;
    if (next == kEnd) break;
    greedy.push_back(next);
  }
  EXPECT_EQ(found[0].tokens, greedy);
}

TEST(BeamSearch, EarlyStoppingEndsWithTheFirstFullSet) {
  int early = 0;
  int normal = 0;
  int never = 0;
  Search(MakeOptions(3, 40, {1.0f, EarlyStopping::kOn}), &early);
  Search(MakeOptions(3, 40, {1.0f, EarlyStopping::kOff}), &normal);
  Search(MakeOptions(3, 40, {1.0f, EarlyStopping::kNever}), &never);
  EXPECT_LE(early, normal);
  EXPECT_LE(normal, never);
  EXPECT_LT(early, 40);
}

TEST(BeamSearch, NoHypothesisEndsBeforeMinTokens) {
  BeamSearch::Options options = MakeOptions(4, 12);
  options.min_tokens = 6;
  const auto found = Search(options);
  ASSERT_FALSE(found.empty());
  for (const BeamHypothesis& hypothesis : found) EXPECT_GE(hypothesis.tokens.size(), 6u);
}

TEST(BeamSearch, LongerPenaltiesFavourLongerOutputs) {
  const auto shorter = Search(MakeOptions(4, 12, {0.0f, EarlyStopping::kNever}));
  const auto longer = Search(MakeOptions(4, 12, {3.0f, EarlyStopping::kNever}));
  EXPECT_LE(shorter[0].tokens.size(), longer[0].tokens.size());
}

}  // namespace
}  // namespace quire::sched
