#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::text {
namespace {

constexpr uint64_t kSeed = 7711;

StopMatcher Matcher(const std::vector<std::string>& stops, StopText text = StopText::kExclude) {
  return StopMatcher(StopStrings::Create(stops).value(), text);
}

TEST(StopMatcher, FindsAStopInsideAToken) {
  StopMatcher matcher = Matcher({"DE"});
  std::string out;
  EXPECT_TRUE(matcher.Append("ABC", out));
  EXPECT_FALSE(matcher.Append("xDEF", out));
  EXPECT_EQ(out, "ABCx");
  EXPECT_EQ(matcher.stopped_at(), 0);
}

TEST(StopMatcher, FindsAStopAcrossTokensAndSendsNothingAfterIt) {
  StopMatcher matcher = Matcher({"\n\nUser:", "###"});
  std::string out;
  for (const char* token : {"Yes.", "\n", "\n", "Us", "er", ": more", " text"}) {
    matcher.Append(token, out);
  }
  matcher.Finish(out);
  EXPECT_EQ(out, "Yes.");
  EXPECT_EQ(matcher.stopped_at(), 0);
}

TEST(StopMatcher, HoldsBackNoMoreThanCouldStillBecomeAStop) {
  StopMatcher matcher = Matcher({"aab"});
  std::string out;
  matcher.Append("xa", out);
  EXPECT_EQ(out, "x");
  matcher.Append("a", out);
  EXPECT_EQ(out, "x");
  matcher.Append("a", out);  // of xaaa, only the last two could start aab
  EXPECT_EQ(out, "xa");
  matcher.Append("c", out);
  EXPECT_EQ(out, "xaaac");
  matcher.Append("aa", out);
  matcher.Finish(out);
  EXPECT_EQ(out, "xaaacaa");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, IncludesTheStopOnRequest) {
  StopMatcher matcher = Matcher({"STOP"}, StopText::kInclude);
  std::string out;
  matcher.Append("a ST", out);
  matcher.Append("OP now", out);
  EXPECT_EQ(out, "a STOP");
}

TEST(StopMatcher, TheFirstToBeCompleteWinsAndOfThoseTheLongest) {
  StopMatcher matcher = Matcher({"cd", "abcde", "bcd"});
  std::string out;
  matcher.Append("xabcdef", out);
  EXPECT_EQ(out, "xa");
  EXPECT_EQ(matcher.stopped_at(), 2);
}

TEST(StopMatcher, PassedTextIsNoPartOfAStop) {
  StopMatcher matcher = Matcher({"END"});
  std::string out;
  matcher.Pass("END EN", out);
  EXPECT_EQ(out, "END EN");
  EXPECT_TRUE(matcher.Append("D.", out));
  EXPECT_EQ(out, "END END.");
  EXPECT_FALSE(matcher.Append("END", out));
}

TEST(StopMatcher, WithoutStopsEverythingPassesAtOnce) {
  StopMatcher matcher = Matcher({});
  std::string out;
  EXPECT_TRUE(matcher.Append("anything", out));
  EXPECT_EQ(out, "anything");
}

TEST(StopMatcher, EmptyAndEndlessStopsAreRefused) {
  EXPECT_FALSE(StopStrings::Create({"a", ""}).ok());
  EXPECT_FALSE(StopStrings::Create({std::string(100'000, 'a')}).ok());
}

TEST(StopMatcher, ACopyIsASnapshot) {
  StopMatcher matcher = Matcher({"abc"});
  std::string before;
  matcher.Append("zab", before);
  StopMatcher snapshot = matcher;
  std::string out = before;
  EXPECT_FALSE(matcher.Append("c", out));
  EXPECT_EQ(out, "z");
  std::string again = before;
  EXPECT_TRUE(snapshot.Append("d", again));
  EXPECT_EQ(again, "zabd");
}

// What must come out after each prefix, by looking at everything from the start.
struct Expected {
  std::string out;
  bool stopped = false;
};

Expected Naive(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (const std::string& stop : stops) {
      if (stop.starts_with(std::string_view(text).substr(begin))) {
        return {text.substr(0, begin), false};
      }
    }
  }
  return {text, false};
}

std::string RandomText(base::CounterRng& rng, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + rng.NextBelow(3)));
  return text;
}

TEST(StopMatcher, EqualsTheNaiveTwinAfterEveryToken) {
  for (uint64_t round = 0; round < 3000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 3, round);
    std::vector<std::string> stops(1 + rng.NextBelow(3));
    for (std::string& stop : stops) stop = RandomText(rng, 1 + rng.NextBelow(6));
    StopMatcher matcher = Matcher(stops);
    std::string text;
    std::string out;
    for (int token = 0; token < 12; ++token) {
      const std::string piece = RandomText(rng, rng.NextBelow(4));
      text += piece;
      const bool goes_on = matcher.Append(piece, out);
      const Expected expected = Naive(text, stops);
      ASSERT_EQ(out, expected.out) << text;
      ASSERT_EQ(goes_on, !expected.stopped) << text;
    }
  }
}

TEST(StopMatcher, TimeIsLinearInTheText) {
  // Each byte extends a partial match of tens of thousands: going back over it each time would take
  // minutes.
  StopMatcher matcher = Matcher({std::string(50'000, 'a') + "b"});
  std::string out;
  const std::string piece(10, 'a');
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(matcher.Append(piece, out));
  EXPECT_EQ(out.size(), 150'000u);
}

}  // namespace
}  // namespace quire::text
