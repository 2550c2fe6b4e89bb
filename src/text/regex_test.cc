#include "text/regex.h"

#include <gtest/gtest.h>

namespace quire::text {
namespace {

std::vector<std::string> Matches(std::string_view pattern, const std::string& text) {
  const Regex regex = Regex::Compile(pattern).value();
  Regex::Matcher matcher(regex);
  std::vector<std::string> matches;
  size_t from = 0;
  while (const std::optional<Regex::Range> match = matcher.Find(text, from)) {
    matches.push_back(text.substr(match->begin, match->end - match->begin));
    from = match->end;
  }
  return matches;
}

TEST(Regex, SpaceIsUnicodeWhiteSpaceAndNothingElse) {
  // U+180E is no white space since Unicode 6.3.
  const std::string spaces = "\t \u00a0\u1680\u2003\u2028\u202f\u205f\u3000";
  EXPECT_EQ(Matches(R"(\s+)", spaces + "\u180e"), std::vector<std::string>{spaces});
  EXPECT_EQ(Matches(R"([^\s]+)", spaces + "\u180e"), std::vector<std::string>{"\u180e"});
  EXPECT_EQ(Matches(R"(\S+)", " \u180ea\u3000b"), (std::vector<std::string>{"\u180ea", "b"}));
  EXPECT_EQ(Matches(R"([\S])", " \u180e"), std::vector<std::string>{"\u180e"});
}

TEST(Regex, LettersAndNumbersAreUnicode) {
  EXPECT_EQ(Matches(R"(\p{L}+|\p{N}+)", "Äpfel ½ ж語"),
            (std::vector<std::string>{"Äpfel", "½", "ж語"}));
}

TEST(Regex, EmptyMatchesAreNone) {
  EXPECT_EQ(Matches("a*", "baac"), std::vector<std::string>{"aa"});
}

TEST(Regex, WhatMeansSomethingElseElsewhereIsRefused) {
  EXPECT_FALSE(Regex::Compile("[a&&b]").ok());
  EXPECT_FALSE(Regex::Compile("[a[bc]]").ok());
  EXPECT_FALSE(Regex::Compile("(").ok());
  EXPECT_FALSE(Regex::Compile("a\\").ok());
  EXPECT_FALSE(Regex::Compile("\xff").ok());
  EXPECT_TRUE(Regex::Compile(R"([\[\]&[:digit:]])").ok());
  EXPECT_EQ(Matches("[]a]+", "b]a"), std::vector<std::string>{"]a"});
}

TEST(Regex, AHopelessSearchEndsAndFindsNothing) {
  const std::string text = std::string(200, 'a') + "b";
  EXPECT_TRUE(Matches("(a|a|a|a)+(a|a|a)+c", text).empty());
}

TEST(Regex, ALongMatchOutgrowsTheCompiledMatchersStack) {
  const std::string text(100'000, 'a');
  EXPECT_EQ(Matches("(?:a|b)+", text), std::vector<std::string>{text});
}

}  // namespace
}  // namespace quire::text
