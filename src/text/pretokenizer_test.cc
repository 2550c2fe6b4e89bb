#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(const std::vector<PretokenizerStep>& steps, std::string text,
                               SectionPlace place = SectionPlace::kFirst) {
  const Words words = Pretokenizer::Create(steps).value().Split(std::move(text), place);
  std::vector<std::string> out;
  for (size_t i = 0; i < words.ranges.size(); ++i) out.emplace_back(words.word(i));
  return out;
}

std::vector<std::string> SplitAs(std::string_view name, std::string text) {
  return Split(FindPretokenizer(name).value().steps, std::move(text));
}

SplitStep Dashes(SplitBehavior behavior, bool invert = false) {
  return {.pattern = "-", .behavior = behavior, .invert = invert};
}

TEST(Pretokenizer, MatchesJoinTheirNeighboursAsToldTo) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(Split({Dashes(SplitBehavior::kIsolated)}, text),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(Split({Dashes(SplitBehavior::kRemoved)}, text),
              ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Split({Dashes(SplitBehavior::kMergedWithPrevious)}, text),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(Split({Dashes(SplitBehavior::kMergedWithNext)}, text),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(Split({Dashes(SplitBehavior::kContiguous)}, text),
              ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(Split({Dashes(SplitBehavior::kRemoved, true)}, text), ElementsAre("-", "-", "-"));
}

TEST(Pretokenizer, MetaspacePutsASpaceWhereItsSchemeSays) {
  const MetaspaceStep always;
  EXPECT_THAT(Split({always}, "a  b"), ElementsAre("\u2581a", "\u2581", "\u2581b"));
  EXPECT_THAT(Split({always}, " a"), ElementsAre("\u2581a"));
  const MetaspaceStep first{.prepend = PrependScheme::kFirst};
  EXPECT_THAT(Split({first}, "a b"), ElementsAre("\u2581a", "\u2581b"));
  EXPECT_THAT(Split({first}, "a b", SectionPlace::kLater), ElementsAre("a", "\u2581b"));
  const MetaspaceStep whole{.prepend = PrependScheme::kNever, .split = false};
  EXPECT_THAT(Split({whole}, "a b"), ElementsAre("a\u2581b"));
}

TEST(Pretokenizer, StepsAfterByteLevelSeeSpelledBytes) {
  // The first byte of the second character is 0xB2 spelled, which reads as a superscript two.
  const std::vector<PretokenizerStep> steps = {ByteLevelStep{}, SplitStep{.pattern = R"(\p{N}+)"}};
  EXPECT_THAT(Split(steps, "ab12 \u0432"), ElementsAre("ab", "12", " \xd0", "\xb2"));
}

TEST(Pretokenizer, APrefixSpaceIsAddedOnce) {
  const std::vector<PretokenizerStep> steps = {ByteLevelStep{.add_prefix_space = true}};
  EXPECT_THAT(Split(steps, "a b"), ElementsAre(" a", " b"));
  EXPECT_THAT(Split(steps, " a b"), ElementsAre(" a", " b"));
}

TEST(Pretokenizer, NamedOnesSplitAsTheirModelsWereTrained) {
  const std::string text = "I'LL pay 12345 \u20ac\n\n  now!";
  EXPECT_THAT(SplitAs("gpt-2", text),
              ElementsAre("I", "'", "LL", " pay", " 12345", " \u20ac", "\n\n ", " now", "!"));
  EXPECT_THAT(SplitAs("llama-bpe", text),
              ElementsAre("I", "'LL", " pay", " ", "123", "45", " \u20ac\n\n", " ", " now", "!"));
  EXPECT_THAT(SplitAs("qwen2", text), ElementsAre("I", "'LL", " pay", " ", "1", "2", "3", "4", "5",
                                                  " \u20ac\n\n", " ", " now", "!"));
  EXPECT_THAT(SplitAs("deepseek-coder", text),
              ElementsAre("I", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", " ", "\u20ac", "\n",
                          "\n", " ", " now", "!"));
  EXPECT_THAT(SplitAs("starcoder", text), ElementsAre("I", "'", "LL", " pay", " ", "1", "2", "3",
                                                      "4", "5", " \u20ac", "\n\n ", " now", "!"));
  EXPECT_THAT(SplitAs("falcon", text), ElementsAre("I", "'", "LL", " pay", " ", "123", "45",
                                                   " \u20ac", "\n\n ", " now", "!"));
  EXPECT_THAT(SplitAs("tekken", "HelloWorld \u4e2dA"),
              ElementsAre("Hello", "World", " \u4e2d", "A"));
}

TEST(Pretokenizer, AnUnknownNameIsRefusedByName) {
  const Result<NamedPretokenizer> named = FindPretokenizer("nobody-knows");
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.error().message, ::testing::HasSubstr("nobody-knows"));
}

}  // namespace
}  // namespace quire::text
