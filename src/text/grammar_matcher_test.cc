// Masks and matchers: what a mask allows is what a matcher accepts, and what comes out is valid.
#include "text/grammar_matcher.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#include "testing/random_runs.h"
#include "text/grammar_json.h"
#include "text/grammar_testing.h"

namespace quire::text {
namespace {

namespace json = boost::json;

const TokenId kEnd = *GrammarTestTokenizer().eos();

std::vector<TokenId> AllowedTokens(GrammarMatcher& matcher) {
  std::vector<TokenId> tokens;
  const TokenMask& mask = matcher.Allowed();
  for (TokenId token = 0; token < GrammarTestTokenizer().vocab_size(); ++token) {
    if (mask.Test(token)) tokens.push_back(token);
  }
  return tokens;
}

std::vector<TokenId> AcceptedTokens(const GrammarMatcher& matcher) {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < GrammarTestTokenizer().vocab_size(); ++token) {
    GrammarMatcher copy = matcher;
    if (copy.Accept(token)) tokens.push_back(token);
  }
  return tokens;
}

// One of the tokens that bring JSON to its end soonest, where one may come.
TokenId SoonestEnd(const std::vector<TokenId>& allowed) {
  for (const std::string_view wanted : {"", "\"", "}", "]", "0", "e", "l"}) {
    for (const TokenId token : allowed) {
      if (wanted.empty() ? token == kEnd : GrammarTestVocabulary()->bytes(token) == wanted) {
        return token;
      }
    }
  }
  return allowed.front();
}

// A random text of the grammar: random tokens, then the way to the end.
std::string RandomWalk(GrammarMatcher matcher, base::CounterRng& rng, int tokens) {
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<TokenId> allowed = AllowedTokens(matcher);
    if (allowed.empty()) {
      ADD_FAILURE() << "a dead end after " << text;
      return text;
    }
    const TokenId token = i < tokens ? allowed[rng.NextBelow(allowed.size())] : SoonestEnd(allowed);
    EXPECT_TRUE(matcher.Accept(token)) << text;
    if (token == kEnd) return text;
    text += GrammarTestTokenizer().TokenBytes(token);
  }
  ADD_FAILURE() << "no end after " << text;
  return text;
}

constexpr const char* kSchemas[] = {
    R"({"type":"object"})",
    R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":30},"maxItems":40})",
    R"({"properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
        "tags":{"type":"array","items":{"enum":["a","ab","abc","b"]}}},"required":["name"],
        "additionalProperties":{"type":"number"}})",
    R"({"type":"array","items":{"type":"array","items":{"pattern":"[a-c]{2,40}é?"}}})",
    R"({"anyOf":[{"type":"string","format":"date"},{"$ref":"#/$defs/t"}],"$defs":{"t":{
        "type":"array","items":{"$ref":"#/$defs/t"},"maxItems":3}}})"};

TEST(GrammarMatcher, MasksAllowExactlyWhatIsAccepted) {
  const uint64_t seed = quire::testing::TestSeed(1);
  for (const char* schema : kSchemas) {
    const auto grammar = CompileJsonSchema(json::parse(schema));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    const GrammarMatcher start = MatcherOf(*grammar);
    for (uint64_t walk = 0; walk < 6; ++walk) {
      base::CounterRng rng(seed, walk, 0);
      GrammarMatcher matcher = start;
      for (int i = 0; i < 60 && !matcher.finished(); ++i) {
        const std::vector<TokenId> allowed = AllowedTokens(matcher);
        ASSERT_EQ(allowed, AcceptedTokens(matcher)) << schema;
        ASSERT_FALSE(allowed.empty());
        matcher.Accept(rng.NextBelow(3) == 0 ? SoonestEnd(allowed)
                                             : allowed[rng.NextBelow(allowed.size())]);
      }
    }
  }
}

TEST(GrammarMatcher, ForgettingChangesNothing) {
  const auto grammar = CompileJsonSchema(json::parse(kSchemas[2]));
  ASSERT_TRUE(grammar.ok());
  const auto forgetful = std::make_shared<GrammarMasks>(*grammar, GrammarTestVocabulary(), 1);
  GrammarMatcher a(forgetful, {kEnd});
  GrammarMatcher b = MatcherOf(*grammar);
  base::CounterRng rng(quire::testing::TestSeed(2), 0, 0);
  while (!a.finished()) {
    const std::vector<TokenId> allowed = AllowedTokens(a);
    ASSERT_EQ(allowed, AllowedTokens(b));
    const TokenId token =
        rng.NextBelow(2) ? SoonestEnd(allowed) : allowed[rng.NextBelow(allowed.size())];
    ASSERT_TRUE(a.Accept(token) && b.Accept(token));
  }
  EXPECT_TRUE(b.finished());
}

TEST(GrammarMatcher, ACopyIsASnapshot) {
  const auto grammar = CompileRegex("a(b|c)*d");
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher = MatcherOf(*grammar);
  ASSERT_TRUE(matcher.AcceptBytes("ab"));
  GrammarMatcher copy = matcher;
  const std::vector<TokenId> before = AllowedTokens(matcher);
  ASSERT_TRUE(copy.AcceptBytes("cbd"));
  EXPECT_TRUE(copy.finished());
  EXPECT_FALSE(matcher.finished());
  EXPECT_EQ(AllowedTokens(matcher), before);
  EXPECT_FALSE(matcher.AcceptBytes("cx"));  // a refusal changes nothing
  EXPECT_EQ(AllowedTokens(matcher), before);
}

TEST(GrammarMatcher, EndTokensMayComeExactlyWhereTheGrammarMayEnd) {
  const auto grammar = CompileRegex("ab?");
  ASSERT_TRUE(grammar.ok());
  // An ordinary token as a stop token: wherever it would be text, it may not come.
  const TokenId b = *GrammarTestTokenizer().FindToken("b");
  const auto masks = std::make_shared<GrammarMasks>(*grammar, GrammarTestVocabulary());
  GrammarMatcher matcher(masks, {kEnd, b});
  EXPECT_FALSE(matcher.Allowed().Test(kEnd));
  EXPECT_FALSE(matcher.Accept(kEnd));
  EXPECT_FALSE(matcher.Allowed().Test(b));
  ASSERT_TRUE(matcher.Accept(*GrammarTestTokenizer().FindToken("a")));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_FALSE(matcher.finished());
  EXPECT_TRUE(matcher.Allowed().Test(kEnd));
  EXPECT_TRUE(matcher.Allowed().Test(b));
  ASSERT_TRUE(matcher.Accept(b));
  EXPECT_TRUE(matcher.finished());
  EXPECT_TRUE(AllowedTokens(matcher).empty());
  EXPECT_FALSE(matcher.Accept(kEnd));

  GrammarMatcher without(masks, {});
  ASSERT_TRUE(without.AcceptBytes("ab"));
  EXPECT_TRUE(without.finished());
  EXPECT_TRUE(AllowedTokens(without).empty());
}

TEST(GrammarMatcher, CharactersMayBeSplitOverTokens) {
  const auto grammar = CompileRegex("[一-龥]{2}");
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher = MatcherOf(*grammar);
  for (const char byte : std::string_view("中文")) {
    const TokenId token =
        *GrammarTestTokenizer().FindToken(std::string(ByteLetter(static_cast<uint8_t>(byte))));
    ASSERT_TRUE(matcher.Allowed().Test(token));
    EXPECT_FALSE(matcher.finished());
    ASSERT_TRUE(matcher.Accept(token));
  }
  EXPECT_TRUE(matcher.finished());
}

TEST(GrammarMatcher, ByteFallbackTokensSpellWhatHasNoToken) {
  base::CounterRng rng(3, 0, 0);
  const Tokenizer tokenizer = Tokenizer::Create(RandomSentencePieceSpec(rng, 50)).value();
  const auto vocabulary = GrammarVocabulary::Create(tokenizer, tokenizer.vocab_size());
  const auto grammar = CompileJsonSchema(json::parse(R"({"enum":["\u00e9😀 a"]})"));
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher(std::make_shared<GrammarMasks>(*grammar, vocabulary), {2});
  std::string text;
  while (!matcher.finished()) {
    const TokenMask& mask = matcher.Allowed();
    TokenId token = 0;
    while (token < tokenizer.vocab_size() && !mask.Test(token)) ++token;
    ASSERT_LT(token, tokenizer.vocab_size());
    ASSERT_EQ(tokenizer.IsControl(token), false);
    text += tokenizer.TokenBytes(token);
    ASSERT_TRUE(matcher.Accept(token));
  }
  EXPECT_EQ(text, "\"é😀 a\"");
}

TEST(GrammarMatcher, ThreadsShareOneGrammarsMasks) {
  const auto grammar = CompileJsonSchema(json::parse(kSchemas[2]));
  ASSERT_TRUE(grammar.ok());
  const auto masks = std::make_shared<GrammarMasks>(*grammar, GrammarTestVocabulary(), 200'000);
  std::vector<std::string> texts(4);
  const auto walk = [&](size_t i) {
    base::CounterRng rng(9, i, 0);
    texts[i] = RandomWalk(GrammarMatcher(masks, {kEnd}), rng, 60);
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) threads.emplace_back(walk, i);
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> together = texts;
  for (size_t i = 0; i < texts.size(); ++i) walk(i);
  EXPECT_EQ(texts, together);
}

// A random schema, and whether a value satisfies one: a plain reading of the specification.
class RandomSchema {
 public:
  explicit RandomSchema(base::CounterRng& rng) : rng_(rng) {}

  json::value Make(int depth = 0) {
    switch (rng_.NextBelow(depth > 3 ? 6 : 10)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"enum", {1, "x\"y", nullptr, json::array{1, 2}}}};
      case 2:
        return MakeInteger();
      case 3:
        return MakeString();
      case 4:
        return {{"type", "number"}, {"minimum", -2.5}, {"exclusiveMaximum", 7}};
      case 5:
        return {{"type", {"null", "number"}}};
      case 6:
        return {{"anyOf", {Make(depth + 1), Make(depth + 1)}}};
      case 7:
        return MakeArray(depth);
      case 8:
        return {{"$ref", "#/$defs/list"}};
      default:
        return MakeObject(depth);
    }
  }

 private:
  json::value MakeInteger() {
    const int64_t low = static_cast<int64_t>(rng_.NextBelow(300)) - 150;
    return {{"type", "integer"},
            {"minimum", low},
            {"maximum", low + static_cast<int64_t>(rng_.NextBelow(2000))}};
  }
  json::value MakeString() {
    const int64_t min = static_cast<int64_t>(rng_.NextBelow(5));
    return {{"type", "string"},
            {"minLength", min},
            {"maxLength", min + static_cast<int64_t>(rng_.NextBelow(60))}};
  }
  json::value MakeArray(int depth) {
    const int64_t min = static_cast<int64_t>(rng_.NextBelow(3));
    return {{"type", "array"},
            {"items", Make(depth + 1)},
            {"minItems", min},
            {"maxItems", min + static_cast<int64_t>(rng_.NextBelow(20))}};
  }
  json::value MakeObject(int depth) {
    json::object properties;
    json::array required;
    for (uint64_t i = rng_.NextBelow(4); i-- > 0;) {
      const std::string name = std::string(1 + rng_.NextBelow(2), "ab\"é"[rng_.NextBelow(3)]);
      properties[name] = Make(depth + 1);
      if (rng_.NextBelow(2)) required.emplace_back(name);
    }
    json::object schema{{"type", "object"}, {"properties", properties}, {"required", required}};
    if (rng_.NextBelow(2)) schema["additionalProperties"] = Make(depth + 1);
    return schema;
  }

  base::CounterRng& rng_;
};

class Validator {
 public:
  explicit Validator(const json::value& root) : root_(root) {}

  bool Valid(const json::value& value, const json::value& schema) const {
    const json::object& object = schema.as_object();
    if (const json::value* reference = object.if_contains("$ref")) {
      return Valid(value, root_.at_pointer(std::string_view(reference->as_string()).substr(1)));
    }
    if (const json::value* any = object.if_contains("anyOf")) {
      return std::ranges::any_of(any->as_array(), [&](const auto& s) { return Valid(value, s); });
    }
    if (const json::value* list = object.if_contains("enum")) {
      return std::ranges::find(list->as_array(), value) != list->as_array().end();
    }
    return HasType(value, object.at("type")) && InBounds(value, object) && Items(value, object) &&
           Members(value, object);
  }

 private:
  static bool HasType(const json::value& value, const json::value& type) {
    if (type.is_array()) {
      return std::ranges::any_of(type.as_array(), [&](const auto& t) { return HasType(value, t); });
    }
    const bool is_integer = value.is_int64() || value.is_uint64();
    return (type == "null" && value.is_null()) || (type == "boolean" && value.is_bool()) ||
           (type == "integer" && is_integer) || (type == "number" && value.is_number()) ||
           (type == "string" && value.is_string()) || (type == "array" && value.is_array()) ||
           (type == "object" && value.is_object());
  }
  static bool Within(double value, const json::object& schema, std::array<const char*, 2> bounds) {
    const json::value* low = schema.if_contains(bounds[0]);
    const json::value* high = schema.if_contains(bounds[1]);
    return (!low || value >= low->to_number<double>()) &&
           (!high || value <= high->to_number<double>());
  }
  static bool InBounds(const json::value& value, const json::object& schema) {
    if (value.is_number()) {
      const json::value* below = schema.if_contains("exclusiveMaximum");
      const auto number = value.to_number<double>();
      return Within(number, schema, {"minimum", "maximum"}) &&
             (!below || number < below->to_number<double>());
    }
    if (!value.is_string()) return true;
    const std::string_view text = value.get_string();
    const auto continues = [](char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; };
    const auto length = static_cast<double>(text.size()) -
                        static_cast<double>(std::ranges::count_if(text, continues));
    return Within(length, schema, {"minLength", "maxLength"});
  }
  bool Items(const json::value& value, const json::object& schema) const {
    if (!value.is_array()) return true;
    return Within(static_cast<double>(value.as_array().size()), schema, {"minItems", "maxItems"}) &&
           std::ranges::all_of(value.as_array(),
                               [&](const auto& item) { return Valid(item, schema.at("items")); });
  }
  bool Members(const json::value& value, const json::object& schema) const {
    if (!value.is_object()) return true;
    const json::object& properties = schema.at("properties").as_object();
    for (const json::value& name : schema.at("required").as_array()) {
      if (!value.as_object().contains(name.as_string())) return false;
    }
    return std::ranges::all_of(value.as_object(), [&](const auto& member) {
      if (const json::value* named = properties.if_contains(member.key())) {
        return Valid(member.value(), *named);
      }
      const json::value* additional = schema.if_contains("additionalProperties");
      return additional != nullptr ? Valid(member.value(), *additional) : properties.empty();
    });
  }

  const json::value& root_;
};

TEST(GrammarMatcher, RandomTextsOfRandomSchemasAreValid) {
  const uint64_t seed = quire::testing::TestSeed(4);
  const int64_t rounds = quire::testing::TestRuns(1500);
  for (int64_t round = 0; round < rounds; ++round) {
    base::CounterRng rng(seed, static_cast<uint64_t>(round), 0);
    json::value schema = RandomSchema(rng).Make();
    schema.as_object()["$defs"] = {
        {"list", {{"type", "array"}, {"maxItems", 3}, {"items", {{"$ref", "#/$defs/list"}}}}}};
    const auto grammar = CompileJsonSchema(schema);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message << json::serialize(schema);
    const GrammarMatcher matcher = MatcherOf(*grammar);
    for (int walk = 0; walk < 3; ++walk) {
      const std::string text = RandomWalk(matcher, rng, static_cast<int>(rng.NextBelow(60)));
      json::parse_options options;
      options.max_depth = 1000;
      boost::system::error_code error;
      const json::value value = json::parse(text, error, {}, options);
      ASSERT_FALSE(error.failed()) << round << " " << text;
      ASSERT_TRUE(Validator(schema).Valid(value, schema))
          << round << " " << json::serialize(schema) << " " << text;
    }
  }
}

}  // namespace
}  // namespace quire::text
