#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::engine {
namespace {

using sched::SamplingParams;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

const kernels::VectorKernels& Kernels() {
  return *kernels::VectorKernelsFor(kernels::Isa::kScalar);
}

std::vector<float> RandomLogits(int vocab, uint64_t seed) {
  base::CounterRng rng(seed, 1, 2);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& l : logits) l = static_cast<float>(8.0 * rng.NextUnit() - 4.0);
  return logits;
}

// The naive twin: sorts everything and computes in double.
std::map<TokenId, double> ExactDistribution(const std::vector<float>& logits,
                                            const SamplingParams& params) {
  struct Item {
    double p;
    TokenId token;
  };
  std::vector<Item> items;
  double max = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i) {
    items.push_back({std::exp((logits[i] - max) / params.temperature), static_cast<TokenId>(i)});
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.p > b.p; });
  std::erase_if(items, [&](const Item& item) { return item.p < params.min_p; });
  if (params.top_k > 0 && items.size() > static_cast<size_t>(params.top_k)) {
    items.resize(static_cast<size_t>(params.top_k));
  }
  double sum = 0;
  for (const Item& item : items) sum += item.p;
  size_t keep = 0;
  for (double passed = 0; keep < items.size();) {
    passed += items[keep++].p;
    if (params.top_p < 1 && passed >= params.top_p * sum) break;
  }
  items.resize(keep);
  sum = 0;
  for (const Item& item : items) sum += item.p;
  std::map<TokenId, double> exact;
  for (const Item& item : items) exact[item.token] = item.p / sum;
  return exact;
}

std::vector<SamplingParams> ManyParams() {
  std::vector<SamplingParams> all;
  for (float temperature : {0.3f, 1.0f, 2.5f}) {
    for (int top_k : {0, 1, 7, 40, 100000}) {
      for (float top_p : {0.0f, 0.5f, 0.9f, 0.999f, 1.0f}) {
        for (float min_p : {0.0f, 0.02f, 1.0f}) {
          SamplingParams params;
          params.temperature = temperature;
          params.top_k = top_k;
          params.top_p = top_p;
          params.min_p = min_p;
          all.push_back(params);
        }
      }
    }
  }
  return all;
}

TEST(Sampler, FilterKeepsExactlyWhatTheNaiveTwinKeeps) {
  for (int vocab : {1, 2, 50, 1000, 20000}) {
    std::vector<float> logits = RandomLogits(vocab, static_cast<uint64_t>(vocab));
    Sampler sampler(Kernels(), vocab);
    for (const SamplingParams& params : ManyParams()) {
      std::map<TokenId, double> exact = ExactDistribution(logits, params);
      Result<Distribution> filtered = sampler.Filter({.logits = logits, .params = &params});
      ASSERT_TRUE(filtered.ok());
      ASSERT_EQ(filtered->candidates.size(), exact.size())
          << vocab << " t " << params.temperature << " k " << params.top_k << " p " << params.top_p
          << " min_p " << params.min_p;
      auto it = exact.begin();
      for (const Candidate& c : filtered->candidates) {
        ASSERT_EQ(c.token, it->first);  // by ascending id
        ASSERT_NEAR(c.value / filtered->total, it->second, 1e-5 * it->second);
        ++it;
      }
    }
  }
}

TEST(Sampler, DrawsHaveTheExactDistribution) {
  const int kVocab = 40;
  const int kDraws = 20000;
  std::vector<float> logits = RandomLogits(kVocab, 3);
  SamplingParams variants[4];
  variants[1].temperature = 0.7f;
  variants[1].top_p = 0.8f;
  variants[2].top_k = 12;
  variants[3].min_p = 0.1f;
  Sampler sampler(Kernels(), kVocab);
  for (SamplingParams& params : variants) {
    params.seed = 42;
    std::map<TokenId, double> exact = ExactDistribution(logits, params);
    std::map<TokenId, int> count;
    for (int i = 0; i < kDraws; ++i) {
      SampleInput input{.logits = logits, .params = &params, .key = {params.seed, i % 3, i / 3}};
      ++count[sampler.Sample(input)->token];
    }
    double chi2 = 0;
    for (const auto& [token, p] : exact) {
      double expected = p * kDraws;
      chi2 += (count[token] - expected) * (count[token] - expected) / expected;
    }
    for (const auto& [token, n] : count) ASSERT_TRUE(exact.contains(token)) << token;
    double dof = static_cast<double>(exact.size()) - 1;
    EXPECT_LT(chi2, dof + 4 * std::sqrt(2 * dof) + 4) << "about 1 in 10,000 by chance";
  }
}

TEST(Sampler, WhatIsDrawnDependsOnTheKeyAlone) {
  const int kVocab = 300;
  SamplingParams params;
  params.top_p = 0.95f;
  Sampler one(Kernels(), kVocab);
  std::vector<TokenId> in_order;
  for (int i = 0; i < 64; ++i) {
    std::vector<float> logits = RandomLogits(kVocab, static_cast<uint64_t>(i % 5));
    in_order.push_back(
        one.Sample({.logits = logits, .params = &params, .key = {7, i % 4, i}})->token);
  }
  for (int i = 63; i >= 0; --i) {  // backwards, with fresh scratch
    Sampler other(Kernels(), kVocab);
    std::vector<float> logits = RandomLogits(kVocab, static_cast<uint64_t>(i % 5));
    EXPECT_EQ(other.Sample({.logits = logits, .params = &params, .key = {7, i % 4, i}})->token,
              in_order[static_cast<size_t>(i)]);
  }
  std::vector<float> flat(kVocab, 0.0f);
  std::map<TokenId, int> seen;
  for (int sequence = 0; sequence < 20; ++sequence) {
    SampleInput input{.logits = flat, .params = &params, .key = {7, sequence, 5}};
    ++seen[one.Sample(input)->token];
  }
  EXPECT_GT(seen.size(), 15u) << "sequences of one request draw independently";
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  SamplingParams params;
  params.temperature = 0.0f;
  std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.0f, 2.0f};
  Sampler sampler(Kernels(), 5);
  EXPECT_EQ(sampler.Sample({.logits = logits, .params = &params})->token, 1);
  params.temperature = 1.0f;
  params.top_k = 1;
  EXPECT_EQ(sampler.Sample({.logits = logits, .params = &params})->token, 1);
  params.top_k = 0;
  params.top_p = 0.0f;
  EXPECT_EQ(sampler.Sample({.logits = logits, .params = &params})->token, 1);
  params.top_p = 1.0f;
  params.top_k = 2;
  for (int i = 0; i < 50; ++i) {
    SampleInput input{.logits = logits, .params = &params, .key = {1, 0, i}};
    TokenId token = sampler.Sample(input)->token;
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
}

TEST(Sampler, OneFiniteLogitIsAlwaysDrawn) {
  std::vector<float> logits(1000, -kInf);
  logits[777] = -30.0f;
  Sampler sampler(Kernels(), 1000);
  for (const SamplingParams& params : ManyParams()) {
    EXPECT_EQ(sampler.Sample({.logits = logits, .params = &params})->token, 777);
  }
}

TEST(Sampler, LogitsThatAreNotNumbersAreAnError) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  SamplingParams random;
  random.logprobs = 2;
  Sampler sampler(Kernels(), 100);
  for (const SamplingParams& params : {greedy, random}) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
      std::vector<float> logits = RandomLogits(100, 1);
      logits[99] = bad;
      auto sampled = sampler.Sample({.logits = logits, .params = &params});
      ASSERT_FALSE(sampled.ok());
      EXPECT_THAT(sampled.error().message, HasSubstr("not finite"));
    }
    std::vector<float> nothing(100, -kInf);
    EXPECT_FALSE(sampler.Sample({.logits = nothing, .params = &params}).ok());
  }
}

TEST(Sampler, MasksAndBansExcludeTokens) {
  std::vector<float> logits(70, 0.0f);
  logits[3] = 9.0f;
  logits[64] = 5.0f;
  logits[65] = 4.0f;
  SamplingParams params;
  params.temperature = 0.0f;
  Sampler sampler(Kernels(), 70);
  std::vector<uint32_t> allowed(3, 0);
  allowed[2] = 0b11;
  SampleInput input{.logits = logits, .params = &params, .allowed = allowed};
  EXPECT_EQ(sampler.Sample(input)->token, 64);
  std::vector<TokenId> banned = {64};
  input.banned = banned;
  EXPECT_EQ(sampler.Sample(input)->token, 65);
  banned = {64, 65};
  input.banned = banned;
  auto nothing = sampler.Sample(input);
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.error().message, HasSubstr("no token may come next"));
}

TEST(Sampler, PenaltiesActAsDocumented) {
  std::vector<TokenId> prompt = {0, 1};
  TokenCounts counts(prompt);
  for (TokenId token : {2, 2, 3}) counts.Append(token);
  std::vector<float> logits = {2.0f, -2.0f, 2.0f, -2.0f, 1.0f};
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  params.frequency_penalty = 0.25f;
  params.presence_penalty = 0.5f;
  params.logit_bias = {{4, 3.0f}, {1, 1.0f}};
  Sampler sampler(Kernels(), 5);
  auto filtered = sampler.Filter({.logits = logits, .params = &params, .counts = &counts});
  ASSERT_TRUE(filtered.ok());
  // The prompt's tokens get only the repetition penalty, after the bias.
  const double adjusted[] = {1.0, -2.0, 1.0 - 0.5 - 0.5, -4.0 - 0.25 - 0.5, 4.0};
  double total = 0;
  for (double a : adjusted) total += std::exp(a);
  ASSERT_EQ(filtered->candidates.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(filtered->candidates[i].value / filtered->total, std::exp(adjusted[i]) / total,
                1e-6);
  }
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  const int kVocab = 5000;
  std::vector<float> logits = RandomLogits(kVocab, 8);
  logits[17] = 6.0f;
  logits[4000] = 6.0f;
  SamplingParams params;
  params.temperature = 0.5f;
  params.top_k = 3;
  params.logit_bias = {{5, 50.0f}};
  params.logprobs = 4;
  Sampler sampler(Kernels(), kVocab);
  auto sampled = sampler.Sample({.logits = logits, .params = &params});
  ASSERT_TRUE(sampled.ok());
  double sum = 0;
  for (float l : logits) sum += std::exp(static_cast<double>(l));
  EXPECT_EQ(sampled->token, 5);
  ASSERT_TRUE(sampled->logprob.has_value());
  EXPECT_NEAR(*sampled->logprob, logits[5] - std::log(sum), 1e-5);
  ASSERT_EQ(sampled->top.size(), 4u);
  EXPECT_EQ(sampled->top[0].token, 17);
  EXPECT_EQ(sampled->top[1].token, 4000);
  EXPECT_NEAR(sampled->top[0].logprob, 6.0 - std::log(sum), 1e-5);
  EXPECT_GE(sampled->top[2].logprob, sampled->top[3].logprob);
  auto scored = sampler.Score(logits, 17, 0);
  EXPECT_EQ(scored->logprob, sampled->top[0].logprob);
  EXPECT_TRUE(scored->top.empty());
  EXPECT_EQ(sampler.TopLogprobs(logits, 6)->size(), 6u);
  params.logprobs.reset();
  EXPECT_FALSE(sampler.Sample({.logits = logits, .params = &params})->logprob.has_value());
}

TEST(SelectTop, EqualsAFullSort) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    base::CounterRng rng(seed, 5, 0);
    size_t size = 1 + rng.NextBelow(30000);
    std::vector<float> row(size);
    uint64_t distinct = 2 + rng.NextBelow(5000);
    for (float& v : row) v = static_cast<float>(rng.NextBelow(distinct));
    std::vector<Candidate> sorted;
    for (size_t i = 0; i < size; ++i) sorted.push_back({row[i], static_cast<TokenId>(i)});
    std::sort(sorted.begin(), sorted.end(), Precedes);
    for (size_t count : {size_t{1}, size_t{20}, size_t{700}, size}) {
      std::vector<Candidate> top;
      SelectTop(Kernels(), row, static_cast<int>(count), top);
      size_t expected = std::min(count, size);
      ASSERT_EQ(top, std::vector<Candidate>(sorted.begin(),
                                            sorted.begin() + static_cast<std::ptrdiff_t>(expected)))
          << "seed " << seed << " count " << count;
    }
  }
}

TEST(LastOfTopMass, EqualsAWalkOverASort) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::CounterRng rng(seed, 6, 0);
    size_t size = 1 + rng.NextBelow(2000);
    std::vector<Candidate> weights;
    for (size_t i = 0; i < size; ++i) {  // multiples of 2^-10: sums are exact in every order
      weights.push_back({static_cast<float>(rng.NextBelow(50)) / 1024, static_cast<TokenId>(i)});
    }
    std::vector<Candidate> sorted = weights;
    std::sort(sorted.begin(), sorted.end(), Precedes);
    double total = 0;
    for (const Candidate& c : weights) total += c.value;
    double mass = rng.NextUnit() * total;
    Candidate expected = sorted.back();
    double passed = 0;
    for (const Candidate& c : sorted) {
      passed += c.value;
      if (passed >= mass) {
        expected = c;
        break;
      }
    }
    ASSERT_EQ(LastOfTopMass(weights, mass), expected) << "seed " << seed;
    ASSERT_EQ(LastOfTopMass(weights, total * 2), sorted.back()) << "seed " << seed;
  }
}

TEST(TokenCounts, TruncateUndoesAppend) {
  base::CounterRng rng(9, 0, 0);
  std::vector<TokenId> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back(static_cast<TokenId>(rng.NextBelow(30)));
  TokenCounts counts(prompt);
  std::vector<TokenId> output;
  for (int round = 0; round < 500; ++round) {
    for (uint64_t n = rng.NextBelow(6); n > 0; --n) {
      output.push_back(static_cast<TokenId>(rng.NextBelow(60)));
      counts.Append(output.back());
    }
    output.resize(output.size() - rng.NextBelow(std::min<uint64_t>(output.size(), 5) + 1));
    counts.Truncate(static_cast<int>(output.size()));
    std::map<TokenId, TokenCounts::Entry> naive;
    for (TokenId t : prompt) ++(naive[t].token = t, naive[t]).prompt;
    for (TokenId t : output) ++(naive[t].token = t, naive[t]).output;
    std::vector<TokenCounts::Entry> expected;
    for (const auto& [token, entry] : naive) expected.push_back(entry);
    std::vector<TokenCounts::Entry> got(counts.entries().begin(), counts.entries().end());
    ASSERT_EQ(got, expected) << "round " << round;
  }
}

TEST(ValidateSampling, NamesWhatIsOutOfRange) {
  SamplingParams good;
  EXPECT_TRUE(ValidateSampling(good, 100).ok());
  auto message = [](auto change) {
    SamplingParams params;
    change(params);
    Status status = ValidateSampling(params, 100);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  EXPECT_THAT(message([](auto& p) { p.temperature = -1; }), HasSubstr("temperature is -1"));
  EXPECT_THAT(message([](auto& p) { p.temperature = std::nanf(""); }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 1.5f; }), HasSubstr("top_p is 1.5"));
  EXPECT_THAT(message([](auto& p) { p.min_p = -0.1f; }), HasSubstr("min_p"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -2; }), HasSubstr("top_k"));
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 0; }), HasSubstr("repetition_penalty"));
  EXPECT_THAT(message([](auto& p) { p.min_tokens = 99; }), HasSubstr("min_tokens is 99"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{100, 1.0f}}; }), HasSubstr("ids 0 to 99"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{1, 1e9f}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(message([](auto& p) { p.stop_token_ids = {-1}; }), HasSubstr("stop_token_ids"));
}

}  // namespace
}  // namespace quire::engine
