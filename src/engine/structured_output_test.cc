// A constrained request's text satisfies its constraint, whatever surrounds the request.
#include <map>
#include <regex>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "testing/engine_runner.h"

namespace quire::engine {
namespace {

namespace json = boost::json;
using sched::OutputConstraint;
using sched::Request;
using testing::Generate;
using testing::GenerateOne;

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
    "kind": {"enum": ["cat", "dog", null]}},
  "required": ["name", "age", "kind"]})";

void ExpectSatisfiesSchema(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  ASSERT_FALSE(error.failed()) << text;
  const json::object& object = value.as_object();
  EXPECT_TRUE(object.at("name").is_string()) << text;
  EXPECT_GE(object.at("age").as_int64(), 0) << text;
  EXPECT_LE(object.at("age").as_int64(), 150) << text;
  const json::value& kind = object.at("kind");
  EXPECT_TRUE(kind == "cat" || kind == "dog" || kind.is_null()) << text;
  if (const json::value* tags = object.if_contains("tags")) {
    EXPECT_LE(tags->as_array().size(), 3u);
    for (const json::value& tag : tags->as_array()) EXPECT_TRUE(tag.is_string()) << text;
  }
  for (const auto& member : object) {
    const std::string_view name = member.key();
    EXPECT_TRUE(name == "name" || name == "age" || name == "tags" || name == "kind") << text;
  }
}

class StructuredOutput : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make(const EngineOptions& options = {}) {
    return testing::MakeEngineOrDie(*model_, options, *team_);
  }
  static Request MakeRequest(const std::string& prompt, uint64_t seed) {
    Request request;
    request.prompt = model_->tokenizer().Encode(prompt, {.add_special = true});
    request.sampling.max_tokens = 250;
    request.sampling.seed = seed;
    return request;
  }
  static Request SchemaRequest(uint64_t seed) {
    Request request = MakeRequest("The animal, as JSON: ", seed);
    request.sampling.constraint = {OutputConstraint::Kind::kJsonSchema, kSchema, {}};
    return request;
  }

  static void SetUpTestSuite() {
    team_ = std::make_unique<base::ThreadTeam>(2);
    model_ = testing::LoadModelOrDie("models/draft/draft-q8_0.gguf", *team_);
  }
  static void TearDownTestSuite() {
    model_.reset();
    team_.reset();
  }

  static std::unique_ptr<base::ThreadTeam> team_;
  static std::unique_ptr<LoadedModel> model_;
};
std::unique_ptr<base::ThreadTeam> StructuredOutput::team_;
std::unique_ptr<LoadedModel> StructuredOutput::model_;

TEST_F(StructuredOutput, EverySeedGivesJsonOfTheSchema) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    requests.push_back(SchemaRequest(seed));
    if (seed % 3 == 0) requests.back().sampling.temperature = 0;
    if (seed % 4 == 0) requests.back().sampling.repetition_penalty = 1.2f;
  }
  for (const Completion& completion : Generate(*Make(), requests)) {
    EXPECT_EQ(completion.choices[0].finish, sched::FinishReason::kStop);
    ExpectSatisfiesSchema(completion.choices[0].text);
  }
}

TEST_F(StructuredOutput, BatchedEqualsAlone) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 6; ++seed) requests.push_back(SchemaRequest(seed));
  requests.push_back(MakeRequest("Once upon a time", 9));  // without a constraint
  const auto together = Generate(*Make(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(GenerateOne(*Make(), requests[i]).choices[0].tokens, together[i].choices[0].tokens);
  }
}

TEST_F(StructuredOutput, PreemptedEqualsUndisturbed) {
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    requests.push_back(SchemaRequest(seed));
    requests.back().sampling.max_tokens = 100;
  }
  EngineOptions tight;
  tight.max_model_len = 128;
  tight.kv_format.block_size = 16;
  const auto layout = kvstore::KvLayout::Create(KvGeometryOf(model_->config()), tight.kv_format);
  ASSERT_TRUE(layout.ok());
  tight.kv_cache_memory = 9 * layout->frame_bytes();
  auto engine = Make(tight);
  const auto squeezed = Generate(*engine, requests);
  EXPECT_GT(engine->scheduler().stats().preemptions, 0);
  const auto roomy = Generate(*Make(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(squeezed[i].choices[0].tokens, roomy[i].choices[0].tokens);
    if (roomy[i].choices[0].finish == sched::FinishReason::kStop) {
      ExpectSatisfiesSchema(roomy[i].choices[0].text);
    }
  }
}

TEST_F(StructuredOutput, EachOfSeveralSequencesGoesItsOwnWay) {
  Request request = SchemaRequest(100);
  request.n = 4;
  const Completion together = GenerateOne(*Make(), request);
  ASSERT_EQ(together.choices.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    ExpectSatisfiesSchema(together.choices[i].text);
    EXPECT_EQ(GenerateOne(*Make(), SchemaRequest(100 + i)).choices[0].tokens,
              together.choices[i].tokens);
  }
}

// Each mask of this expression takes milliseconds: hundreds of ways to have read the text so far.
// Without time for more than one of them a step, the other sequences sit it out.
TEST_F(StructuredOutput, HardMasksHoldUpNobodyElse) {
  Request hard = MakeRequest("The letters: ", 7);
  hard.sampling.max_tokens = 60;  // far beyond where alternatives are cut
  hard.sampling.constraint = {OutputConstraint::Kind::kRegex, "(.{0,300}[a-m]){0,200}Q", {}};
  hard.n = 8;
  Request plain = MakeRequest("Once upon a time", 9);
  plain.sampling.max_tokens = 12;
  plain.sampling.ignore_eos = true;
  EngineOptions hurried;
  hurried.mask_budget_s = 0;
  auto engine = Make(hurried);
  std::map<RequestId, std::vector<std::vector<TokenId>>> tokens;
  const RequestId plain_id = engine->Submit(plain).value();
  const RequestId hard_id = engine->Submit(hard).value();
  tokens[plain_id].resize(1);
  tokens[hard_id].resize(8);
  int64_t steps = 0;
  while (engine->Step([&](const SequenceUpdate& update) {
    auto& row = tokens[update.request][update.index];
    row.insert(row.end(), update.tokens.begin(), update.tokens.end());
  })) {
    ++steps;
    if (steps <= 12) {
      EXPECT_EQ(tokens[plain_id][0].size(), static_cast<size_t>(steps));
    }
  }
  size_t longest = 0;
  for (const auto& row : tokens[hard_id]) longest = std::max(longest, row.size());
  EXPECT_GT(static_cast<size_t>(steps), longest);  // nobody sitting out: a token each every step
  EXPECT_EQ(tokens[plain_id][0], GenerateOne(*Make(), plain).choices[0].tokens);
  const Completion alone = GenerateOne(*Make(), hard);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(tokens[hard_id][i], alone.choices[i].tokens);
}

TEST_F(StructuredOutput, ACompleteTextEndsEvenWhereTheModelMayNotSaySo) {
  Request request = SchemaRequest(5);
  request.sampling.ignore_eos = true;
  const Choice choice = GenerateOne(*Make(), request).choices[0];
  EXPECT_EQ(choice.finish, sched::FinishReason::kStop);
  ExpectSatisfiesSchema(choice.text);
  request.sampling.ignore_eos = false;
  request.sampling.min_tokens = 200;  // more than there is to say
  EXPECT_EQ(GenerateOne(*Make(), request).choices[0].text, choice.text);
}

TEST_F(StructuredOutput, PatternsChoicesAndGrammarsHold) {
  const std::regex date("[0-9]{4}-[01][0-9](, [a-z]{2,5})*");
  const std::vector<std::string> choices = {"red", "green", "blue-green", "é😀"};
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const OutputConstraint& constraint :
         {OutputConstraint{OutputConstraint::Kind::kRegex, "[0-9]{4}-[01][0-9](, [a-z]{2,5})*", {}},
          OutputConstraint{OutputConstraint::Kind::kChoice, "", choices},
          OutputConstraint{OutputConstraint::Kind::kGbnf,
                           "root ::= \"(\" (root | [a-z]{1,3}) \")\" | [0-9]",
                           {}}}) {
      requests.push_back(MakeRequest("It is ", seed));
      requests.back().sampling.constraint = constraint;
    }
  }
  const auto completions = Generate(*Make(), requests);
  for (size_t i = 0; i < completions.size(); i += 3) {
    const Choice& pattern = completions[i].choices[0];
    if (pattern.finish == sched::FinishReason::kStop) {
      EXPECT_TRUE(std::regex_match(pattern.text, date)) << pattern.text;
    }
    const std::string& chosen = completions[i + 1].choices[0].text;
    EXPECT_TRUE(std::ranges::find(choices, chosen) != choices.end()) << chosen;
    const std::string& nested = completions[i + 2].choices[0].text;
    EXPECT_EQ(std::ranges::count(nested, '('), std::ranges::count(nested, ')')) << nested;
  }
}

TEST_F(StructuredOutput, AConstraintThatCannotBeIsTheClientsError) {
  auto engine = Make();
  Request request = MakeRequest("x", 1);
  const std::pair<OutputConstraint, const char*> errors[] = {
      {{OutputConstraint::Kind::kJsonSchema, R"({"not":{}})", {}}, "json_schema"},
      {{OutputConstraint::Kind::kJsonSchema, "{", {}}, "json_schema"},
      {{OutputConstraint::Kind::kRegex, "(?=a)", {}}, "regex"},
      {{OutputConstraint::Kind::kChoice, "", {}}, "choice"},
      {{OutputConstraint::Kind::kGbnf, "root ::= root", {}}, "grammar"}};
  for (const auto& [constraint, param] : errors) {
    request.sampling.constraint = constraint;
    const auto id = engine->Submit(request);
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().kind, ErrorKind::kUsage);
    EXPECT_EQ(id.error().param, param) << id.error().message;
  }
  request.sampling.constraint = OutputConstraint{};
  request.beam_search.emplace();
  const auto beams = engine->Submit(request);
  ASSERT_FALSE(beams.ok());
  EXPECT_EQ(beams.error().param, "use_beam_search");
  EXPECT_TRUE(engine->idle());
}

TEST_F(StructuredOutput, GrammarsAreKeptForLaterRequestsAndForgottenInTheEnd) {
  GrammarCache cache(model_->tokenizer(), model_->config().vocab_size);
  const auto choice = [](int i) {
    return OutputConstraint{OutputConstraint::Kind::kChoice, "", {std::to_string(i)}};
  };
  const auto first = cache.Get(choice(0));
  ASSERT_TRUE(first.ok());
  for (int i = 1; i < static_cast<int>(GrammarCache::kGrammarsMax); ++i) {
    ASSERT_TRUE(cache.Get(choice(i)).ok());
  }
  EXPECT_EQ(*cache.Get(choice(0)), *first);
  ASSERT_TRUE(cache.Get(choice(-1)).ok());  // in the place of 1, which was used last of all
  EXPECT_EQ(*cache.Get(choice(0)), *first);
  EXPECT_EQ(first->use_count(), 2);
  for (int i = 100; i < 120; ++i) ASSERT_TRUE(cache.Get(choice(i)).ok());
  EXPECT_EQ(first->use_count(), 1);
}

}  // namespace
}  // namespace quire::engine
