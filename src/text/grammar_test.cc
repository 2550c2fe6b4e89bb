// Patterns, choices and GBNF: what they accept, and what is an error.
#include "text/grammar.h"

#include <gtest/gtest.h>

#include "testing/random_runs.h"
#include "text/character_set.h"
#include "text/grammar_gbnf.h"
#include "text/grammar_regex.h"
#include "text/grammar_testing.h"

namespace quire::text {
namespace {

struct Example {
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

TriedGrammar TryRegex(const std::string& pattern) {
  return TriedGrammar([&](GrammarBuilder& builder) -> Status {
    const auto spell = [&](const CharacterSet& set) { return builder.Characters(set); };
    QUIRE_ASSIGN_OR_RETURN(const auto expr, ParseRegex(pattern, builder, spell));
    builder.Define(0, expr);
    return Ok{};
  });
}

TriedGrammar TryGbnf(const std::string& grammar) {
  return TriedGrammar([&](GrammarBuilder& builder) { return ParseGbnf(grammar, builder); });
}

void ExpectExample(const TriedGrammar& tried, const Example& example) {
  SCOPED_TRACE(example.grammar);
  for (const std::string& text : example.accepted) EXPECT_TRUE(tried.Accepts(text)) << text;
  for (const std::string& text : example.rejected) EXPECT_FALSE(tried.Accepts(text)) << text;
}

TEST(GrammarRegex, AcceptsExactlyWhatMatches) {
  const Example examples[] = {
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"^a|b$", {"a", "b"}, {"ab", ""}},
      {"a*", {"", "a", "aaaaaaa"}, {"b", "ab"}},
      {"(ab)+c?", {"ab", "abab", "ababc"}, {"", "abc c", "aab", "c"}},
      {"a{2,4}", {"aa", "aaa", "aaaa"}, {"a", "aaaaa", ""}},
      {"a{3}", {"aaa"}, {"aa", "aaaa"}},
      {"a{,2}b", {"b", "ab", "aab"}, {"aaab"}},
      {"a{20,}", {std::string(20, 'a'), std::string(99, 'a')}, {std::string(19, 'a')}},
      {"(?:a?b?){40,50}c", {"c", "abababc", std::string(100, 'b').substr(50) + "c"}, {"", "ca"}},
      {"(a?){3,5}", {"", "a", "aaaaa"}, {"aaaaaa"}},
      {"(a|b){30,60}",
       {std::string(30, 'a'), std::string(60, 'b')},
       {std::string(29, 'a'), std::string(61, 'b')}},
      {"[a-c]+?x", {"ax", "abcx"}, {"x", "dx"}},
      {"[^a-c]", {"d", "é", "\n", "你", "😀"}, {"a", "", "dd"}},
      {"[\\d\\-x]+", {"1-x", "9"}, {"a", "\\"}},
      {"\\w\\W\\s\\S\\D", {"a- xb", "_é\txé"}, {"a-xxb", "a- x1"}},
      {".", {"a", "é", "你", "😀"}, {"\n", "", "aa"}},
      {"\\x41\\u00e9\\u{1F600}", {"Aé😀"}, {"A"}},
      {"(?P<year>\\d{4})-(?<month>\\d\\d)", {"2026-07"}, {"26-07"}},
      {"\\.\\*\\{\\}\\[\\]\\\\", {".*{}[]\\"}, {"a*{}[]\\"}},
      {"[]x", {}, {"]x", "x", ""}},
      {"a||b", {"", "a", "b"}, {"ab"}},
      {"(((a)*)*)*", {"", "aaa"}, {"b"}},
      {"(a*b*)*", {"", "abba", "bbbb"}, {"c"}},
      {"[αβγ]{2}", {"αβ"}, {"α", "αβγ", "ab"}},
  };
  for (const Example& example : examples) {
    if (example.grammar.starts_with("[]")) {
      EXPECT_FALSE(CompileRegex(example.grammar).ok());
      continue;
    }
    ExpectExample(TryRegex(example.grammar), example);
  }
}

TEST(GrammarRegex, WhatIsMalformedOrUnsupportedIsNamed) {
  const std::pair<const char*, const char*> errors[] = {{"(", "parenthesis"},
                                                        {")", "parenthesis"},
                                                        {"[a", "no end"},
                                                        {"a**", "repetition"},
                                                        {"*", "nothing"},
                                                        {"a{2,1}", "below its minimum"},
                                                        {"a{x}", "brace"},
                                                        {"{2}", "brace"},
                                                        {"[z-a]", "ends before"},
                                                        {"[\\d-z]", "range"},
                                                        {"\\", "backslash"},
                                                        {"\\q", "escape"},
                                                        {"(?=a)", "lookaround"},
                                                        {"(?<!a)b", "lookaround"},
                                                        {"(a)\\1", "backreference"},
                                                        {"\\bfoo", "assertion"},
                                                        {"\\p{L}", "Unicode"},
                                                        {"(?i)a", "special kind"},
                                                        {"a++", "possessive"},
                                                        {"a^b", "anchor"},
                                                        {"(a$)b", "anchor"},
                                                        {"[[:alpha:]]", "operation"},
                                                        {"\\ud800", "character"},
                                                        {"a{9999999999}", "1000000000"},
                                                        {"\xff", "UTF-8"},
                                                        {"\\u{110000}", "character"}};
  for (const auto& [pattern, part] : errors) {
    const auto grammar = CompileRegex(pattern);
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_NE(grammar.error().message.find(part), std::string::npos)
        << pattern << ": " << grammar.error().message;
  }
}

TEST(GrammarRegex, CountsCostNothing) {
  const auto grammar = CompileRegex("([a-z]{3,1000000000}[0-9]){999999999}");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_LT((*grammar)->states(), 100);
  GrammarMatcher matcher = MatcherOf(*grammar);
  for (int i = 0; i < 3000; ++i) {
    EXPECT_FALSE(matcher.can_end());
    ASSERT_TRUE(matcher.AcceptBytes("abcdefghijklmnopqrstuvwxyz9")) << i;
  }
  EXPECT_FALSE(matcher.AcceptBytes("ab9"));
}

TEST(GrammarRegex, NestedCountsThatWouldMultiplyStaySmall) {
  std::string pattern = "a";
  for (int i = 0; i < 60; ++i) pattern = "(" + pattern + "b?){2}";
  const auto grammar = CompileRegex(pattern);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_LT((*grammar)->states(), 10000);
}

TEST(GrammarChoice, OneOfTheTextsAndNothingElse) {
  const std::vector<std::string> choices = {"yes", "yesterday", "no", "né", "no"};
  const auto grammar = CompileChoice(choices);
  ASSERT_TRUE(grammar.ok());
  for (const std::string& text : choices) {
    GrammarMatcher matcher = MatcherOf(*grammar);
    EXPECT_TRUE(matcher.AcceptBytes(text) && matcher.can_end());
    EXPECT_EQ(matcher.finished(), text != "yes");
  }
  for (const char* text : {"", "ye", "yesnt", "n", "yesterdays"}) {
    GrammarMatcher matcher = MatcherOf(*grammar);
    EXPECT_FALSE(matcher.AcceptBytes(text) && matcher.can_end()) << text;
  }
  EXPECT_FALSE(CompileChoice({}).ok());
  EXPECT_FALSE(CompileChoice(std::vector<std::string>{"a", ""}).ok());
  EXPECT_FALSE(CompileChoice(std::vector<std::string>{"\xff"}).ok());
}

TEST(GrammarChoice, ThousandsOfTextsAreFollowedAtOnce) {
  std::vector<std::string> choices;
  for (int i = 0; i < 10000; ++i) choices.push_back("item number " + std::to_string(i));
  const auto grammar = CompileChoice(choices);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  for (int i = 0; i < 10000; i += 77) {
    GrammarMatcher matcher = MatcherOf(*grammar);
    EXPECT_TRUE(matcher.AcceptBytes(choices[i]) && matcher.can_end());
  }
}

TEST(GrammarGbnf, AcceptsExactlyWhatTheRulesSay) {
  const Example examples[] = {
      {"root ::= \"a\" b*\nb ::= \"b\" | \"c\" # comment\n", {"a", "abc", "accb"}, {"", "b"}},
      {"root ::= (\"x\" | y)+ \"!\"\ny ::= [0-9] [^0-9]\n", {"x!", "1ax!"}, {"!", "11!"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()"}},
      {"root ::= item (\",\" ws item){0,3}\nitem ::= [a-z]{2,3}\nws ::= [ \\t\\n]*",
       {"ab", "ab, abc,\n\nxyz"},
       {"a", "ab,", "ab,ab,ab,ab,ab"}},
      {"expr ::= term ((\"+\" | \"-\") term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+",
       {"1", "1+2-(3+4)"},
       {"", "1+", "(1"}},
      {"root = a , b ;\n", {}, {}},
      {"root := a b;\na := 'x';\nb = 'y' | \"z\";", {"xy", "xz"}, {"x", "xyz"}},
      {"root ::= \"\\\"\\n\\x41\\u00e9\\\\\" .", {"\"\nAé\\😀"}, {"\"\nAé\\"}},
      {"root ::= a\n  | b\na ::= \"1\"\nb ::=\n  \"2\"\n  \"3\"", {"1", "23"}, {"2"}},
      {"root ::= s\ns ::= \"a\" s \"b\" s | \"\"", {"", "ab", "aabbab"}, {"ba", "aab"}},
      {"root ::= (a | b) a ;a ::= \"x\"? \"y\"?; b ::= \"z\"", {"", "xyxy", "zx"}, {"xyxyx", "zz"}},
  };
  for (const Example& example : examples) {
    if (example.accepted.empty()) {
      EXPECT_FALSE(CompileGbnf(example.grammar).ok());
      continue;
    }
    ExpectExample(TryGbnf(example.grammar), example);
  }
}

TEST(GrammarGbnf, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> errors[] = {
      {"", "no rules"},
      {"root", "::="},
      {"root ::= a", "uses the rule a"},
      {"root ::= \"a", "quotation mark"},
      {"root ::= (\"a\"", "parenthesis"},
      {"root ::= \"a\")", "parenthesis"},
      {"root ::= root \"a\" | \"b\"", "left-recursive"},
      {"root ::= x root | \"z\"\nx ::= \"y\"?", "left-recursive"},
      {"root ::= a\na ::= b\nb ::= a | \"x\"", "left-recursive"},
      {"root ::= \"a\" root", "no text"},
      {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
      {"root ::= \"\\d\"", "class"},
      {"root ::= <x>", "expected"},
      {"root ::= \"a\"*+*+*+*+", "repetition"}};
  for (const auto& [text, part] : errors) {
    const auto grammar = CompileGbnf(text);
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_NE(grammar.error().message.find(part), std::string::npos) << grammar.error().message;
  }
}

TEST(GrammarGbnf, DeepNestingIsRefusedOrFollowedToItsLimit) {
  std::string chain;
  for (int i = 0; i < 1000; ++i) {
    chain += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + " \"b\"\n";
  }
  const auto deep = CompileGbnf(chain + "r1000 ::= \"c\"");
  ASSERT_FALSE(deep.ok());
  EXPECT_EQ(deep.error().kind, ErrorKind::kExhausted);

  const auto parentheses = CompileGbnf("root ::= \"(\" root \")\" | \"x\"");
  ASSERT_TRUE(parentheses.ok());
  GrammarMatcher matcher = MatcherOf(*parentheses);
  int depth = 0;
  while (matcher.AcceptBytes("(")) ++depth;
  EXPECT_GT(depth, 150);
  EXPECT_LE(depth, Grammar::kNestingMax);
  EXPECT_TRUE(matcher.AcceptBytes("x" + std::string(depth, ')')));
  EXPECT_TRUE(matcher.can_end());
}

TEST(GrammarGbnf, RightRecursionDoesNotNest) {
  const auto grammar = CompileGbnf("root ::= \"a\" root | \"b\"");
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher = MatcherOf(*grammar);
  ASSERT_TRUE(matcher.AcceptBytes(std::string(100000, 'a') + "b"));
  EXPECT_TRUE(matcher.finished());
}

TEST(GrammarGbnf, HopelesslyAmbiguousGrammarsStayBounded) {
  const auto grammar = CompileGbnf(
      "root ::= \"a\" x root | \"a\" y root | \"a\"\n"
      "x ::= \"a\" x \"a\" | \"a\" y \"a\" | \"a\"\ny ::= \"a\" y x | \"a\" x y | \"a\"");
  ASSERT_TRUE(grammar.ok());
  GrammarMatcher matcher = MatcherOf(*grammar);
  for (int i = 0; i < 60; ++i) {
    matcher.Allowed();
    ASSERT_TRUE(matcher.AcceptBytes("a"));
  }
}

TEST(GrammarSize, TooLargeIsAnErrorNotAnEvent) {
  std::string alternatives = "root ::= (\"x\"";
  for (int i = 0; i < 3000; ++i) alternatives += " | [a-z] r \"" + std::to_string(i) + "\"";
  EXPECT_TRUE(CompileGbnf(alternatives + ")*\nr ::= \"1\"?").ok());
  std::string optional = "root ::=";
  for (int i = 0; i < 10000; ++i) optional += " [a-c]?";
  const auto grammar = CompileGbnf(optional);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().kind, ErrorKind::kExhausted);
  EXPECT_FALSE(CompileRegex(std::string(Grammar::kTextBytesMax + 1, 'a')).ok());
  EXPECT_FALSE(CompileRegex(std::string(200, '(') + std::string(200, ')')).ok());
}

TEST(CharacterSet, SequencesSpellExactlyItsCharacters) {
  base::CounterRng rng(quire::testing::TestSeed(5), 0, 0);
  for (int round = 0; round < 40; ++round) {
    CharacterSet set;
    for (int i = 0; i < 5; ++i) {
      const auto low = static_cast<char32_t>(rng.NextBelow(rng.NextBelow(2) ? 0x300 : 0x110000));
      set.Add(low, low + static_cast<char32_t>(rng.NextBelow(3000)));
    }
    if (rng.NextBelow(2)) set = set.Complement();
    const std::vector<ByteRanges> sequences = Utf8Sequences(set);
    for (int i = 0; i < 3000; ++i) {
      auto c = static_cast<char32_t>(rng.NextBelow(rng.NextBelow(2) ? 0x1000 : 0x110000));
      if (c >= 0xd800 && c < 0xe000) c = 'a';
      std::string text;
      AppendCharacter(c, text);
      int matches = 0;
      for (const ByteRanges& sequence : sequences) {
        bool all = sequence.size() == text.size();
        for (size_t k = 0; all && k < text.size(); ++k) {
          const auto byte = static_cast<uint8_t>(text[k]);
          all = sequence[k].low <= byte && byte <= sequence[k].high;
        }
        matches += all ? 1 : 0;
      }
      ASSERT_EQ(matches, set.Contains(c) ? 1 : 0) << static_cast<uint32_t>(c);
      ASSERT_NE(set.Contains(c), set.Complement().Contains(c));
    }
  }
}

enum class Calls { kDownwards, kAnywhere };

// Rules of random expressions over the letters a to c.
void DefineRandomRules(base::CounterRng& rng, Calls calls, GrammarBuilder& builder) {
  constexpr uint32_t kRules = 4;
  for (uint32_t i = 1; i < kRules; ++i) builder.AddRule();
  for (uint32_t rule = 0; rule < kRules; ++rule) {
    const std::function<uint32_t(int)> random = [&](int depth) -> uint32_t {
      switch (rng.NextBelow(depth > 3 ? 3 : 8)) {
        case 0:
          return builder.Literal(rng.NextBelow(2) ? "a" : "ab");
        case 1: {
          const uint32_t first = calls == Calls::kDownwards ? rule + 1 : 1;
          if (first == kRules) return builder.Literal("c");
          return builder.CallTo(first + static_cast<uint32_t>(rng.NextBelow(kRules - first)));
        }
        case 2:
          return builder.Characters({'a', static_cast<char32_t>('a' + rng.NextBelow(3))});
        case 3:
        case 4:
          return builder.Concatenate({random(depth + 1), random(depth + 1)});
        case 5:
          return builder.Either({random(depth + 1), random(depth + 1)});
        case 6: {
          const auto min = static_cast<uint32_t>(rng.NextBelow(4));
          const auto more = static_cast<uint32_t>(rng.NextBelow(30));
          if (more < 10) return builder.Times(random(depth + 1), min, Grammar::kUnbounded);
          // Counts within counts are alternatives too.
          const uint32_t part =
              calls == Calls::kAnywhere ? random(depth + 1) : builder.OneOf({"a", "ab", "cb"});
          return builder.Times(part, min, min + more);
        }
        default:
          return builder.Optional(random(depth + 1));
      }
    };
    builder.Define(rule, random(0));
  }
}

// Random grammars and texts: the automaton and the twin agree. Where rules call themselves in many
// ways at once, more alternatives can be open than are followed: then texts may be refused.
void ExpectRandomGrammarsEqualTheTwin(Calls calls) {
  const uint64_t seed = quire::testing::TestSeed(11);
  const int64_t rounds = quire::testing::TestRuns(3000);
  int compiled = 0;
  int accepted = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    base::CounterRng rng(seed, static_cast<uint64_t>(round), 0);
    GrammarBuilder builder;
    DefineRandomRules(rng, calls, builder);
    const auto grammar = builder.Build();
    if (!grammar.ok()) continue;  // left-recursive, or nothing matches
    ++compiled;
    const GrammarMatcher start = MatcherOf(*grammar);
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (uint64_t k = rng.NextBelow(9); k-- > 0;) text += "aabc"[rng.NextBelow(4)];
      GrammarMatcher matcher = start;
      const bool accepts = matcher.AcceptBytes(text) && matcher.can_end();
      const bool twin = NaiveRecognizer(builder, text).Matches();
      ASSERT_TRUE(accepts == twin || (calls == Calls::kAnywhere && twin)) << round << ": " << text;
      accepted += accepts ? 1 : 0;
    }
  }
  EXPECT_GT(compiled, rounds / 20);
  EXPECT_GT(accepted, compiled);
}

TEST(GrammarRandom, RandomGrammarsEqualTheNaiveTwin) {
  ExpectRandomGrammarsEqualTheTwin(Calls::kDownwards);
}

TEST(GrammarRandom, RecursiveRandomGrammarsAcceptNothingElse) {
  ExpectRandomGrammarsEqualTheTwin(Calls::kAnywhere);
}

}  // namespace
}  // namespace quire::text
