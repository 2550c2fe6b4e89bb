// Token eviction against plain references, and beside everything else the engine does.
#include "engine/kv_eviction.h"

#include <filesystem>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/naive_llama_for_test.h"
#include "model/random_model.h"
#include "testing/engine_runner.h"

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

}  // namespace
}  // namespace quire::engine
