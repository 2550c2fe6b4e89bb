// The models that come with quire, and a well-known one, say what they are known to say.
#include <fstream>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "engine/sequence_evaluator.h"
#include "testing/engine_runner.h"
#include "testing/shared_data.h"

namespace quire::engine {
namespace {

namespace json = boost::json;

json::object Golden() {
  std::ifstream file("models/golden.json");
  return json::parse(std::string(std::istreambuf_iterator<char>(file), {})).as_object();
}

EngineOptions ExactKv() {
  EngineOptions options;
  options.kv_format.key_codec = options.kv_format.value_codec = kernels::KvCodec::kF32;
  return options;
}

// Prompt ids, 64 greedy tokens, their text and the five largest logits after the prompt, all
// computed by another implementation in f32.
void ExpectGolden(const std::string& path, const std::string& name) {
  base::ThreadTeam team(2);
  const auto model = testing::LoadModelOrDie(path, team);
  const auto engine = testing::MakeEngineOrDie(*model, ExactKv(), team);
  EvaluatorOptions evaluator_options;
  evaluator_options.kv_format = ExactKv().kv_format;
  evaluator_options.max_tokens = 128;
  const auto evaluator = SequenceEvaluator::Create(*model, evaluator_options, team);
  ASSERT_TRUE(evaluator.ok());
  const json::object golden = Golden();
  for (const json::value& item : golden.at("models").at(name).as_array()) {
    SCOPED_TRACE(item.at("prompt").as_string().c_str());
    const auto prompt_ids = json::value_to<std::vector<TokenId>>(item.at("prompt_ids"));
    EXPECT_EQ(model->tokenizer().Encode(item.at("prompt").as_string(), {.add_special = true}),
              prompt_ids);

    sched::Request request;
    request.prompt = prompt_ids;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 64;
    request.sampling.ignore_eos = true;
    const Choice choice = testing::GenerateOne(*engine, request).choices[0];
    EXPECT_EQ(choice.tokens, json::value_to<std::vector<TokenId>>(item.at("greedy_ids")));
    EXPECT_EQ(choice.text, item.at("greedy_text").as_string());

    std::vector<float> last;
    ASSERT_TRUE((*evaluator)
                    ->Evaluate(prompt_ids,
                               [&](int, std::span<const float> logits) {
                                 last.assign(logits.begin(), logits.end());
                               })
                    .ok());
    for (const json::value& entry : item.at("top5").as_array()) {
      const double expected = entry.at(1).to_number<double>();
      EXPECT_NEAR(last[entry.at(0).to_number<TokenId>()], expected, 1e-4 * std::abs(expected));
    }
  }
}

TEST(BundledModel, DraftFromSafetensorsGivesItsGoldenValues) {
  ExpectGolden("models/draft", "draft");
}

TEST(BundledModel, TargetFromSafetensorsGivesItsGoldenValues) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "demo/target");
  ExpectGolden(path, "target");
}

TEST(BundledModel, DraftFromGgufInHalfPrecisionGivesTheGoldenTokens) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "demo/draft/draft-f16.gguf");
  base::ThreadTeam team(2);
  const auto model = testing::LoadModelOrDie(path, team);
  const auto engine = testing::MakeEngineOrDie(*model, ExactKv(), team);
  const json::object golden = Golden();
  for (const json::value& item : golden.at("models").at("draft").as_array()) {
    sched::Request request;
    request.prompt = json::value_to<std::vector<TokenId>>(item.at("prompt_ids"));
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 64;
    request.sampling.ignore_eos = true;
    EXPECT_EQ(testing::GenerateOne(*engine, request).choices[0].tokens,
              json::value_to<std::vector<TokenId>>(item.at("greedy_ids")));
  }
}

TEST(KnownModel, Stories260KTellsOfLily) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "models/stories260K.gguf");
  base::ThreadTeam team(2);
  const auto model = testing::LoadModelOrDie(path, team);
  const auto engine = testing::MakeEngineOrDie(*model, {}, team);
  sched::Request request;
  request.prompt = model->tokenizer().Encode("Once upon a time", {.add_special = true});
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 200;
  const Choice choice = testing::GenerateOne(*engine, request).choices[0];
  EXPECT_TRUE(choice.text.starts_with(
      ", there was a little girl named Lily. She loved to play outside in the park. One day, she "
      "saw a big, red ball."))
      << choice.text;
}

}  // namespace
}  // namespace quire::engine
