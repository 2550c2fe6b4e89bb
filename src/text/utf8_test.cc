#include "text/utf8.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::text {
namespace {

constexpr uint64_t kSeed = 20240229;

// Bytes that are often almost UTF-8.
std::string RandomBytes(base::CounterRng& rng, size_t length) {
  constexpr std::string_view kBytes =
      "a \x80\x9f\xa0\xbf\xc0\xc2\xdf\xe0\xe2\xed\xef\xf0\xf1\xf4\xf5\xff";
  std::string bytes;
  for (size_t i = 0; i < length; ++i) bytes.push_back(kBytes[rng.NextBelow(kBytes.size())]);
  return bytes;
}

TEST(Utf8, EachMaximalIllFormedPartBecomesOneReplacement) {
  EXPECT_EQ(ToValidUtf8("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(ToValidUtf8("\xe2\x82z"), "\uFFFDz");      // cut short
  EXPECT_EQ(ToValidUtf8("\xe2\x82"), "\uFFFD");        // at the end
  EXPECT_EQ(ToValidUtf8("\xc0\xaf"), "\uFFFD\uFFFD");  // overlong: no byte starts anything
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(ToValidUtf8("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(ToValidUtf8("\xf0\x9f\x98\xc3\xa9"), "\uFFFD\u00e9");
  EXPECT_EQ(ToValidUtf8("\u00e9\u20ac\U0001F600"), "\u00e9\u20ac\U0001F600");
}

TEST(Utf8, WhatIsRepairedIsValidAndValidTextStays) {
  for (uint64_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 1, round);
    const std::string bytes = RandomBytes(rng, rng.NextBelow(12));
    const std::string repaired = ToValidUtf8(bytes);
    ASSERT_TRUE(IsValidUtf8(repaired));
    ASSERT_EQ(IsValidUtf8(bytes), repaired == bytes);
  }
}

TEST(Utf8, AStreamGivesWhatTheWholeGivesHoweverItIsCut) {
  for (uint64_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 2, round);
    const std::string bytes = RandomBytes(rng, rng.NextBelow(30));
    std::string streamed;
    Utf8Stream stream;
    for (size_t i = 0; i < bytes.size();) {
      const size_t length = 1 + rng.NextBelow(4);
      stream.Append(std::string_view(bytes).substr(i, length), streamed);
      ASSERT_TRUE(IsValidUtf8(streamed));
      i += length;
    }
    stream.Finish(streamed);
    ASSERT_EQ(streamed, ToValidUtf8(bytes));
  }
}

TEST(Utf8, CharactersAreReadForwardAndBackward) {
  const std::string text = "a\u00e9\u20ac\U0001F600";
  const std::u32string characters = U"a\u00e9\u20ac\U0001F600";
  std::u32string forward;
  for (size_t at = 0; at < text.size();) forward.push_back(NextCharacter(text, at));
  EXPECT_EQ(forward, characters);
  std::u32string backward;
  for (size_t at = text.size(); at > 0;) backward.insert(0, 1, PreviousCharacter(text, at));
  EXPECT_EQ(backward, characters);
  std::string written;
  for (const char32_t character : characters) AppendCharacter(character, written);
  EXPECT_EQ(written, text);
}

}  // namespace
}  // namespace quire::text
