// JSON schemas: what their grammars accept, and what is an error.
#include <gtest/gtest.h>

#include "testing/random_runs.h"
#include "text/grammar_json.h"
#include "text/grammar_testing.h"
#include "text/json_schema_compiler.h"

namespace quire::text {
namespace {

namespace json = boost::json;

TriedGrammar TrySchema(std::string_view schema) {
  return TriedGrammar([&](GrammarBuilder& builder) {
    const json::value value = json::parse(schema);
    return JsonSchemaCompiler(value, builder).Compile();
  });
}

struct Example {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

void ExpectExamples(std::span<const Example> examples) {
  for (const Example& example : examples) {
    SCOPED_TRACE(example.schema);
    const TriedGrammar tried = TrySchema(example.schema);
    for (const std::string& text : example.accepted) EXPECT_TRUE(tried.Accepts(text)) << text;
    for (const std::string& text : example.rejected) EXPECT_FALSE(tried.Accepts(text)) << text;
  }
}

TEST(JsonSchemaGrammar, SimpleTypes) {
  const Example examples[] = {
      {R"({"type":"null"})", {"null"}, {"true", "", "nul"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "tru"}},
      {R"({"type":["integer","null"]})", {"0", "-12", "null"}, {"-0", "01", "1.5", "+1", "\"1\""}},
      {R"({"type":"number"})",
       {"0", "-1.5", "12e3", "0.25E-10", "-0"},
       {"1.", ".5", "01", "1e", "NaN"}},
      {R"({"type":"string"})",
       {R"("")", R"("aé你😀")", R"("\"\\\/\b\n")", R"("\u00e9\ud83d\ude00")"},
       {"\"", "a", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\ude00")", R"("a"b)"}},
      {R"({"enum":["a","a\"b",1,1.5,null,[1,{"x":true}],"é"]})",
       {R"("a")", R"("a\"b")", "1", "1.5", "null", R"([1, {"x": true}])", R"("é")"},
       {R"("b")", "2", R"([1,{"x":true}])"}},
      {R"({"const":{"a":[]}})", {R"({"a": []})"}, {"{}"}},
      {R"({"enum":[1,"a",2.5,null],"type":["number","null"]})", {"1", "2.5", "null"}, {R"("a")"}},
      {R"({"const":2,"enum":[1,2]})", {"2"}, {"1"}},
  };
  ExpectExamples(examples);
}

TEST(JsonSchemaGrammar, StringsWithLengthPatternAndFormat) {
  const Example examples[] = {
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("é你😀")", R"("\n\u00e9")"},
       {R"("a")", R"("abcd")", R"("")"}},
      {R"({"type":"string","minLength":40})",
       {'"' + std::string(40, 'x') + '"', '"' + std::string(77, 'x') + '"'},
       {'"' + std::string(39, 'x') + '"'}},
      {R"({"maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"pattern":"^[a-z]+\\d{2}$"})", {R"("ab12")"}, {R"("ab1")", R"("12")"}},
      {R"({"pattern":"a\"\\\\\\n.x?"})", {R"("a\"\\\né")", R"("a\"\\\n\"x")"}, {R"("a"\nb")"}},
      {R"({"format":"date"})",
       {R"("2026-07-31")", R"("2024-02-29")", R"("2000-02-29")"},
       {R"("2026-02-29")", R"("1900-02-29")", R"("2026-04-31")", R"("2026-13-01")"}},
      {R"({"format":"time"})",
       {R"("23:59:59Z")", R"("00:00:00.123+01:30")"},
       {R"("24:00:00Z")", R"("10:00Z")", R"("10:00:00")"}},
      {R"({"format":"date-time"})", {R"("2026-07-26T01:02:03Z")"}, {R"("2026-07-26")"}},
      {R"({"format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"format":"email"})", {R"("a.b+c@x.example.org")"}, {R"("a@b")", R"("@b.org")"}},
      {R"({"format":"ipv4"})", {R"("192.168.0.255")"}, {R"("256.1.1.1")", R"("1.2.3")"}},
  };
  ExpectExamples(examples);
}

TEST(JsonSchemaGrammar, ObjectsHaveTheirPropertiesInOrder) {
  const Example examples[] = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},
          "c":{"type":"null"}},"required":["b"]})",
       {R"({"b": ""})", R"({"a":1,"b":"x"})", R"({"a": 1, "b": "x", "c": null})",
        R"({"b":"","c":null})"},
       {"{}", R"({"a":1})", R"({"b":"","a":1})", R"({"b":"","d":1})", R"({"b":"",})",
        R"({ "b":""})", R"({"b":  ""})", R"({"b":""} )", R"({"b":"" })"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})",
       {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
       {R"({,"b":1})", R"({"x":1})", R"({"b":1,"a":2})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a": 1, "": 2})"},
       {R"({"a":"x"})"}},
      {R"({"properties":{"ab":{"type":"integer"},"é":{"type":"null"}},
           "additionalProperties":true})",
       {"{}", R"({"ab":1})", R"({"ab":1,"é":null,"z":[]})", R"({"a":"x"})", R"({"abc":"x","":2})",
        R"({"a":1,"b":{}})"},
       {R"({"ab":"x"})", R"({"x":1,"ab":2})", R"({"\u0061b":"x"})", R"({"é":1})"}},
      {R"({"type":"object","required":["x"],"additionalProperties":{"type":"boolean"}})",
       {R"({"x":true})", R"({"x":true,"y":false})"},
       {"{}", R"({"y":true})", R"({"x":1})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object"})", {"{}", R"({"a":{"b":[1,"x",null,{}]}})"}, {"[]", "{a:1}"}},
      {R"({"type":"object","properties":{"a\"b/~":{"const":1},"no":false},"required":["a\"b/~"]})",
       {R"({"a\"b/~": 1})"},
       {R"({"no":1})"}},
      {R"({"properties":{"in":{"properties":{"x":{"type":"integer"}},"required":["x"]}},
           "required":["in"]})",
       {R"({"in": {"x": 5}})"},
       {R"({"in": {}})"}},
  };
  ExpectExamples(examples);
}

TEST(JsonSchemaGrammar, ArraysHaveTheirItems) {
  const Example examples[] = {
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1, 2,3]"},
       {"[1,]", "[,1]", "[\"a\"]", "[ 1]"}},
      {R"({"items":{"type":"null"},"minItems":2,"maxItems":3})",
       {"[null,null]", "[null,null,null]"},
       {"[]", "[null]", "[null,null,null,null]"}},
      {R"({"items":{"const":1},"minItems":30})",
       {"[1" +
        [] {
          std::string s;
          for (int i = 0; i < 29; ++i) s += ",1";
          return s;
        }() +
        "]"},
       {"[1,1,1]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"prefixItems":[{"const":1},{"const":"a"}]})",
       {R"([1, "a"])"},
       {"[1]", R"([1,"a",2])", "[]"}},
      {R"({"prefixItems":[{"const":1},{"const":"a"}],"items":{"type":"null"},"minItems":1,
           "maxItems":4})",
       {"[1]", R"([1,"a"])", R"([1,"a",null])", R"([1,"a",null,null])"},
       {"[]", R"([1,null])", R"([1,"a",null,null,null])"}},
      {R"({"prefixItems":[{"const":1}],"items":false,"minItems":0})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"items":{"items":{"type":"boolean"}}})", {"[]", "[[true], []]"}, {"[true]"}},
  };
  ExpectExamples(examples);
}

TEST(JsonSchemaGrammar, AlternativesReferencesAndCombinations) {
  const Example examples[] = {
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
       {"1", R"("a")"},
       {R"("ab")", "null"}},
      {R"({"oneOf":[{"const":"x"},false,{"type":"null"}],"description":"d"})",
       {R"("x")", "null"},
       {"1"}},
      {R"({"type":"object","properties":{"k":{"type":"integer"}},"required":["k"],
           "anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},
                    {"properties":{"b":{"const":2}},"required":["b"]}]})",
       {R"({"a": 1, "k": 3})", R"({"b": 2, "k": 3})"},
       {R"({"k":3})", R"({"a":1,"b":2,"k":3})"}},
      {R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5,"minimum":1}]})",
       {"3", "5"},
       {"2", "6"}},
      {R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
           "v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
           "required":["v","next"]}}})",
       {R"({"v": 1, "next": null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"allOf":[{"$ref":"#/definitions/a"}],"definitions":{"a":{"properties":
           {"x":{"type":"integer"},"more":{"$ref":"#/definitions/a"}}}},"required":["x"]})",
       {R"({"x":1})", R"({"x":1,"more":{"more":{"x":2}}})"},
       {"{}"}},
      {"{}", {"1", "[]", R"({"a":null})", R"("x")"}, {"x", "[1,]"}},
      {"true", {"{}"}, {""}},
      {R"({"title":"x","default":3,"x-vendor":[1]})", {"null"}, {"nul"}},
  };
  ExpectExamples(examples);
}

TEST(JsonSchemaGrammar, IntegersWithinBoundsAreExact) {
  const int bounds[] = {-120, -100, -99, -10, -9, -1, 0, 1, 5, 9, 10, 11, 99, 100, 105};
  for (const int low : bounds) {
    for (const int high : bounds) {
      const json::value schema = {
          {"type", "integer"}, {"minimum", low}, {"exclusiveMaximum", high}};
      const auto grammar = CompileJsonSchema(schema);
      ASSERT_EQ(grammar.ok(), low < high) << json::serialize(schema);
      if (!grammar.ok()) continue;
      const GrammarMatcher start = MatcherOf(*grammar);
      for (int i = -130; i <= 130; ++i) {
        GrammarMatcher matcher = start;
        const bool accepts = matcher.AcceptBytes(std::to_string(i)) && matcher.can_end();
        ASSERT_EQ(accepts, low <= i && i < high) << i << " " << json::serialize(schema);
      }
      for (const char* text : {"-0", "00", "01", "-01", "1.0", "1e1", ""}) {
        GrammarMatcher matcher = start;
        EXPECT_FALSE(matcher.AcceptBytes(text) && matcher.can_end()) << text;
      }
    }
  }
}

TEST(JsonSchemaGrammar, LargeBoundsAreExact) {
  const Example examples[] = {
      {R"({"type":"integer","minimum":999999999999999999})",
       {"999999999999999999"},
       {"999999999999999998"}},
      {R"({"type":"integer","maximum":-123456789012})",
       {"-123456789012", "-999999999999999999"},
       {"-123456789011", "1", "0"}},
      {R"({"type":"integer","minimum":1.5,"maximum":2.5})", {"2"}, {"1", "3"}},
      {R"({"type":"number","minimum":1e3,"maximum":1e3})",
       {"1000", "1000.00"},
       {"1000.1", "999.9"}},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":0.5})",
       {"0.5", "0.50", "0.0001", "0.499"},
       {"0", "0.0", "0.51", "-0.1", "1"}},
      {R"({"type":"number","minimum":-0.25,"exclusiveMaximum":0.25})",
       {"-0.25", "0", "0.2499", "-0.1", "-0.0001"},
       {"0.25", "-0.26", "-0", "-0.0", "1"}},
      {R"({"type":"number","minimum":-1})", {"-1", "-0.5", "12345.678"}, {"-1.1", "-2", "1e5"}},
  };
  ExpectExamples(examples);
}

// Decimal fractions compared as integers of thousandths.
TEST(JsonSchemaGrammar, RandomNumbersWithinRandomBoundsAreExact) {
  base::CounterRng rng(quire::testing::TestSeed(3), 0, 0);
  const auto text = [](int thousandths) {
    const int magnitude = std::abs(thousandths);
    return fmt::format("{}{}.{:03}", thousandths < 0 ? "-" : "", magnitude / 1000,
                       magnitude % 1000);
  };
  for (int round = 0; round < 300; ++round) {
    const int low = static_cast<int>(rng.NextBelow(40000)) - 20000;
    const int high = low + 1 + static_cast<int>(rng.NextBelow(20000));
    const bool exclusive = rng.NextBelow(2) != 0;
    const json::value schema = {{"type", "number"},
                                {exclusive ? "exclusiveMinimum" : "minimum", low / 1000.0},
                                {exclusive ? "exclusiveMaximum" : "maximum", high / 1000.0}};
    const auto grammar = CompileJsonSchema(schema);
    ASSERT_TRUE(grammar.ok()) << json::serialize(schema);
    const GrammarMatcher start = MatcherOf(*grammar);
    for (int i = 0; i < 60; ++i) {
      const int near[] = {low - 1, low, low + 1, high - 1, high, high + 1};
      const int number = i < 6 ? near[i] : static_cast<int>(rng.NextBelow(60000)) - 30000;
      if (number == 0) continue;
      GrammarMatcher matcher = start;
      const bool accepts = matcher.AcceptBytes(text(number)) && matcher.can_end();
      const bool within =
          exclusive ? low < number && number < high : low <= number && number <= high;
      ASSERT_EQ(accepts, within) << text(number) << " " << json::serialize(schema);
    }
  }
}

TEST(JsonSchemaGrammar, WhatIsWrongOrUnsupportedIsNamedWithItsPlace) {
  const std::array<const char*, 3> errors[] = {
      {R"({"properties":{"a/b":{"type":"array","uniqueItems":true}}})", "uniqueItems",
       "#/properties/a~1b"},
      {R"({"not":{}})", "not", "#"},
      {R"({"items":{"if":{},"then":{}}})", "if", "#/items"},
      {R"({"type":"integer","multipleOf":3})", "multipleOf", "#"},
      {R"({"anyOf":[{"type":"null"},{"patternProperties":{}}]})", "patternProperties", "#/anyOf/1"},
      {R"({"type":"strin"})", "strin", "#"},
      {R"({"type":[]})", "type", "#"},
      {R"({"$ref":"#/$defs/x"})", "leads nowhere", "#"},
      {R"({"$ref":"other.json"})", "another document", "#"},
      {R"({"$ref":3})", "not a string", "#"},
      {R"x({"properties":{"p":{"pattern":"(?=x)"}}})x", "lookaround", "#/properties/p"},
      {R"({"pattern":"a","minLength":3})", "more than one", "#"},
      {R"({"format":"hostname"})", "hostname", "#"},
      {R"({"minLength":3,"maxLength":2})", "minLength", "#"},
      {R"({"minLength":-1})", "minLength", "#"},
      {R"({"minLength":"3"})", "minLength", "#"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "bounds", "#"},
      {R"({"type":"number","minimum":1e30})", "bound", "#"},
      {R"({"minimum":"1"})", "minimum", "#"},
      {R"({"required":["a"],"additionalProperties":false})", "required", "#"},
      {R"({"required":"a"})", "required", "#"},
      {R"({"enum":[]})", "enum", "#"},
      {R"({"enum":["a"],"type":"integer"})", "enum", "#"},
      {R"({"enum":["a"],"maxLength":1})", "maxLength", "#"},
      {R"({"items":[{}]})", "prefixItems", "#"},
      {R"({"properties":3})", "properties", "#"},
      {R"({"allOf":[{"additionalProperties":false},{"properties":{"a":{}}}]})",
       "additionalProperties", "#"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "pattern", "#"},
      {R"({"properties":{"a":false},"required":["a"]})", "false", "#/properties/a"},
      {"3", "schema", "#"},
      {"false", "false", "#"},
  };
  for (const auto& [schema, part, place] : errors) {
    const auto grammar = CompileJsonSchema(json::parse(schema));
    ASSERT_FALSE(grammar.ok()) << schema;
    const std::string& message = grammar.error().message;
    EXPECT_NE(message.find(part), std::string::npos) << schema << ": " << message;
    EXPECT_NE(message.find("\"" + std::string(place) + "\""), std::string::npos)
        << schema << ": " << message;
  }
}

TEST(JsonSchemaGrammar, SchemasThatNeverEndAreErrors) {
  for (const char* schema :
       {R"({"$ref":"#"})", R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},
                                                            "b":{"$ref":"#/$defs/a"}}})",
        R"({"allOf":[{"$ref":"#"},{"$ref":"#"}]})", R"({"anyOf":[{"$ref":"#"},{"$ref":"#"}]})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"allOf":[{"$ref":"#"}],"type":"object"})"}) {
    const auto grammar = CompileJsonSchema(json::parse(schema));
    EXPECT_FALSE(grammar.ok()) << schema;
  }
}

TEST(JsonSchemaGrammar, CountsBeyondAllBoundsCostNothing) {
  const auto grammar = CompileJsonSchema(json::parse(
      R"({"type":"array","items":{"type":"string","minLength":3,"maxLength":1000000000},
          "maxItems":1000000000000})"));
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_LT((*grammar)->states(), 400);
}

TEST(JsonSchemaGrammar, HundredsOfPropertiesStayLinear) {
  json::object properties;
  for (int i = 0; i < 500; ++i) {
    properties["property_" + std::to_string(i)] = {{"type", "string"}, {"maxLength", 100 + i}};
  }
  const auto grammar = CompileJsonSchema(json::object{{"properties", properties}});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_LT((*grammar)->states(), 60000);
  GrammarMatcher matcher = MatcherOf(*grammar);
  EXPECT_TRUE(matcher.AcceptBytes(R"({"property_499": "x"})"));
  EXPECT_TRUE(matcher.finished());
}

TEST(JsonObjectGrammar, AnyObjectAndOnlyObjects) {
  const auto grammar = CompileJsonObject();
  ASSERT_TRUE(grammar.ok());
  for (const char* text : {"{}", R"({"a": 1})", R"({"a":[1,2,{"b":null}],"c":"é"})"}) {
    GrammarMatcher matcher = MatcherOf(*grammar);
    EXPECT_TRUE(matcher.AcceptBytes(text) && matcher.finished()) << text;
  }
  for (const char* text : {"[]", "1", "{\"a\"}", "{a:1}", ""}) {
    GrammarMatcher matcher = MatcherOf(*grammar);
    EXPECT_FALSE(matcher.AcceptBytes(text) && matcher.can_end()) << text;
  }
}

}  // namespace
}  // namespace quire::text
