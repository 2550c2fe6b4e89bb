// What is sampled with speculation has the distribution of what is sampled without: exact rejection
// sampling, tested by counting.
#include <cmath>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/model_drafter.h"
#include "model/random_model.h"
#include "testing/engine_runner.h"
#include "testing/random_runs.h"

namespace quire::engine {
namespace {

using sched::Request;

constexpr int kSamples = testing::kSanitized ? 20'000 : 200'000;  // of each kind
constexpr int kTogether = 100;                                    // sequences of a request
constexpr int kTokens = 3;
using Counts = std::map<std::vector<TokenId>, int>;

class SpeculationDistribution : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    team_ = std::make_unique<base::ThreadTeam>(1);
    target_ = Made(1);
    draft_ = Made(2);
  }
  static void TearDownTestSuite() {
    target_.reset();
    draft_.reset();
    team_.reset();
  }

  static std::unique_ptr<LoadedModel> Made(uint64_t seed) {
    const auto path = std::filesystem::temp_directory_path() /
                      fmt::format("quire_distribution_{}_{}.gguf", ::getpid(), seed);
    const model::ShapeSizes sizes{.name = "tiny",
                                  .vocab_size = 320,
                                  .hidden_size = 64,
                                  .layers = 1,
                                  .q_heads = 2,
                                  .ffn_size = 64,
                                  .context_length = 64};
    QUIRE_CHECK(model::WriteRandomModel({.sizes = sizes, .type = DType::kF32, .seed = seed},
                                        path.string(), *team_, [](double) {})
                    .ok());
    auto model = testing::LoadModelOrDie(path.string(), *team_);
    std::filesystem::remove(path);
    return model;
  }

  static Request MakeRequest() {
    Request request;
    request.prompt = {270, 271, 272, 270, 271, 273, 270, 271};  // for prompt lookup
    request.sampling.max_tokens = kTokens;
    request.sampling.ignore_eos = true;
    request.sampling.allowed_token_ids = {270, 271, 272, 273, 274};
    request.sampling.temperature = 1.2f;
    request.n = kTogether;
    return request;
  }

  // How often each continuation comes, over seeds from `seed` on.
  static Counts Sample(Engine& engine, Request request, uint64_t seed) {
    Counts counts;
    for (int i = 0; i < kSamples / kTogether; ++i) {
      request.sampling.seed = seed + static_cast<uint64_t>(i) * kTogether;
      std::vector<std::vector<TokenId>> outputs(kTogether);
      QUIRE_CHECK(engine.Submit(request).ok());
      while (engine.Step([&](const SequenceUpdate& update) {
        auto& output = outputs[update.index];
        output.insert(output.end(), update.tokens.begin(), update.tokens.end());
      })) {
      }
      for (const auto& output : outputs) ++counts[output];
    }
    return counts;
  }

  static EngineOptions Options() {
    EngineOptions options;
    options.max_num_seqs = kTogether;
    options.kv_cache_memory = size_t{4} << 20;
    return options;
  }

  // Two samples with different seeds, with and without speculation, tell no difference: by the
  // chi-square test of homogeneity, at 1 in 10,000.
  static void ExpectSameDistribution(const Request& request,
                                     const SpeculationOptions& speculation) {
    EngineOptions options = Options();
    auto plain = testing::MakeEngineOrDie(*target_, options, *team_);
    options.speculation = speculation;
    options.speculation.tokens = 2;
    auto speculative = testing::MakeEngineOrDie(*target_, options, *team_);
    const uint64_t seed = testing::TestSeed(11);
    Counts without = Sample(*plain, request, seed);
    Counts with = Sample(*speculative, request, seed + uint64_t{10} * kSamples);
    const SpeculationStats& stats = speculative->speculation();
    EXPECT_GT(stats.accepted_tokens, kSamples / 10);
    EXPECT_GT(stats.draft_tokens - stats.accepted_tokens, kSamples / 20);

    for (const auto& [tokens, count] : with) without[tokens] += 0;
    double chi_square = 0;
    double cells = 0;
    double rare_a = 0;
    double rare_b = 0;
    for (const auto& [tokens, a] : without) {
      const int b = with[tokens];
      if (a + b < 20) {  // too few for the test: all of these are one cell
        rare_a += a;
        rare_b += b;
        continue;
      }
      chi_square += std::pow(a - b, 2) / (a + b);
      ++cells;
    }
    if (rare_a + rare_b > 0) chi_square += std::pow(rare_a - rare_b, 2) / (rare_a + rare_b);
    const double freedom = cells - (rare_a + rare_b > 0 ? 0 : 1);
    ASSERT_GT(freedom, 10);
    // Wilson and Hilferty's approximation of the quantile.
    const double z = 3.719;
    const double spread = 2 / (9 * freedom);
    EXPECT_LT(chi_square, freedom * std::pow(1 - spread + z * std::sqrt(spread), 3));
  }

  static std::unique_ptr<base::ThreadTeam> team_;
  static std::unique_ptr<LoadedModel> target_;
  static std::unique_ptr<LoadedModel> draft_;
};
std::unique_ptr<base::ThreadTeam> SpeculationDistribution::team_;
std::unique_ptr<LoadedModel> SpeculationDistribution::target_;
std::unique_ptr<LoadedModel> SpeculationDistribution::draft_;

TEST_F(SpeculationDistribution, OfADraftModelsIsThePlainOne) {
  ExpectSameDistribution(MakeRequest(),
                         {.draft_model = draft_.get(), .draft_choice = DraftChoice::kBest});
}

TEST_F(SpeculationDistribution, OfADraftModelThatDrawsIsThePlainOne) {
  ExpectSameDistribution(MakeRequest(),
                         {.draft_model = draft_.get(), .draft_choice = DraftChoice::kDrawn});
}

TEST_F(SpeculationDistribution, OfPromptLookupIsThePlainOneWithTopPAndPenalties) {
  Request request = MakeRequest();
  request.sampling.top_p = 0.9f;
  request.sampling.frequency_penalty = 0.4f;
  request.sampling.repetition_penalty = 1.1f;
  ExpectSameDistribution(request, {.methods = {DraftMethod::kNgram}});
}

TEST_F(SpeculationDistribution, OfSuffixMatchingIsThePlainOneWithAGrammar) {
  Request request = MakeRequest();
  std::string pattern = "(";
  for (const TokenId token : request.sampling.allowed_token_ids) {
    const std::string text(target_->tokenizer().TokenBytes(token));
    pattern += (pattern.size() > 1 ? "|" : "") + text + text + "?" + "|" + text;
  }
  request.sampling.constraint = {sched::OutputConstraint::Kind::kRegex, pattern + ")*", {}};
  ExpectSameDistribution(request,
                         {.methods = {DraftMethod::kSuffix}, .sharing = OutputSharing::kOff});
}

}  // namespace
}  // namespace quire::engine
