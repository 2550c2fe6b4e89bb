// What drafters propose.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/ngram_drafter.h"
#include "engine/suffix_drafter.h"
#include "testing/random_runs.h"

namespace quire::engine {
namespace {

using Tokens = std::vector<TokenId>;

TEST(NgramDrafter, ContinuesTheNewestOfTheLongestMatches) {
  const Tokens text = {1, 2, 3, 9, 1, 2, 3, 7, 8, 2, 3, 5, 1, 2, 3};
  EXPECT_EQ(NgramDrafter::Continue(text, 3), (Tokens{7, 8, 2}));
  EXPECT_EQ(NgramDrafter::Continue(text, 1), (Tokens{7}));
}

TEST(NgramDrafter, GoesOnWithItselfWhereTheTextEnds) {
  EXPECT_EQ(NgramDrafter::Continue(Tokens{5, 6, 5, 6}, 5), (Tokens{5, 6, 5, 6, 5}));
  EXPECT_EQ(NgramDrafter::Continue(Tokens{4, 4}, 3), (Tokens{4, 4, 4}));
}

TEST(NgramDrafter, HasNoIdeaOfWhatNeverCame) {
  EXPECT_TRUE(NgramDrafter::Continue(Tokens{1, 2, 3}, 4).empty());
  EXPECT_TRUE(NgramDrafter::Continue(Tokens{1}, 4).empty());
}

Tokens RandomText(base::CounterRng& rng, int length, int vocabulary) {
  Tokens text;
  while (static_cast<int>(text.size()) < length) {
    if (text.size() > 3 && rng.NextBelow(4) == 0) {  // say something again
      const size_t from = rng.NextBelow(text.size());
      const size_t count = std::min(text.size() - from, 1 + rng.NextBelow(8));
      for (size_t i = 0; i < count; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(static_cast<TokenId>(rng.NextBelow(vocabulary)));
    }
  }
  text.resize(length);
  return text;
}

// How often `part` is in the texts, followed by something or not.
int Occurrences(const std::vector<Tokens>& texts, std::span<const TokenId> part) {
  int count = 0;
  for (const Tokens& text : texts) {
    for (size_t end = part.size(); end <= text.size(); ++end) {
      count += std::ranges::equal(std::span(text).subspan(end - part.size(), part.size()), part);
    }
  }
  return count;
}

// Of the texts' substrings the longest that ends `tokens`.
int LongestEnding(const std::vector<Tokens>& texts, std::span<const TokenId> tokens) {
  int length = 0;
  while (length < static_cast<int>(tokens.size()) &&
         Occurrences(texts, tokens.last(length + 1)) > 0) {
    ++length;
  }
  return length;
}

TEST(SuffixAutomaton, FindsAndCountsLikeASearchThroughTheTexts) {
  const uint64_t seed = testing::TestSeed(7);
  for (int64_t round = 0; round < testing::TestRuns(300); ++round) {
    SCOPED_TRACE(round);
    base::CounterRng rng(seed, 1, round);
    const int vocabulary = 2 + static_cast<int>(rng.NextBelow(6));
    SuffixAutomaton automaton;
    std::vector<Tokens> texts;
    for (int t = 1 + static_cast<int>(rng.NextBelow(3)); t > 0; --t) {
      automaton.StartText();
      texts.push_back(RandomText(rng, 1 + static_cast<int>(rng.NextBelow(40)), vocabulary));
      for (const TokenId token : texts.back()) automaton.Append(token);
    }
    const Tokens asked = RandomText(rng, 30, vocabulary);
    SuffixAutomaton::Match match;
    for (size_t i = 0; i < asked.size(); ++i) {
      match = automaton.Advance(match, asked[i]);
      const auto seen = std::span(asked).first(i + 1);
      ASSERT_EQ(match.length, LongestEnding(texts, seen));
      if (match.length == 0) continue;
      Tokens next;
      automaton.Continue(match, 1, 0.0, next);
      // The token that most often follows what was matched.
      int most = 0;
      for (TokenId token = 0; token < vocabulary; ++token) {
        Tokens longer(seen.end() - match.length, seen.end());
        longer.push_back(token);
        most = std::max(most, Occurrences(texts, longer));
      }
      if (most == 0) continue;  // only shorter endings were followed by anything
      ASSERT_EQ(next.size(), 1u);
      Tokens longer(seen.end() - match.length, seen.end());
      longer.push_back(next[0]);
      ASSERT_EQ(Occurrences(texts, longer), most);
    }
  }
}

TEST(SuffixAutomaton, KnowsTheLongestEndingThatCameBefore) {
  const uint64_t seed = testing::TestSeed(8);
  for (int64_t round = 0; round < testing::TestRuns(200); ++round) {
    base::CounterRng rng(seed, 2, round);
    const Tokens text = RandomText(rng, 60, 2 + static_cast<int>(rng.NextBelow(6)));
    SuffixAutomaton automaton;
    for (size_t i = 0; i < text.size(); ++i) {
      automaton.Append(text[i]);
      const auto said = std::span(text).first(i + 1);
      const std::vector<Tokens> before = {{said.begin(), said.end() - 1}};
      ASSERT_EQ(automaton.Repeated().length, LongestEnding(before, said));
    }
  }
}

TEST(SuffixAutomaton, StaysSmallWhateverTheText) {
  SuffixAutomaton automaton;
  for (int i = 0; i < 100000; ++i) automaton.Append(7);
  EXPECT_LT(automaton.bytes(), size_t{100000} * 200);
  Tokens next;
  automaton.Continue(automaton.Repeated(), 5, 0.0, next);
  EXPECT_EQ(next, Tokens(5, 7));
}

class SuffixDrafterTest : public ::testing::Test {
 protected:
  // What is drafted for a sequence that has said `tokens`.
  Tokens Draft(SuffixDrafter& drafter, const Tokens& tokens, const std::string& salt, int most) {
    sched::Sequence sequence = SequenceOf(1, tokens);
    sched::Request request;
    request.cache_salt = salt;
    DraftJob job{&sequence, &request, most, {}};
    DraftJob* jobs[] = {&job};
    drafter.Propose(jobs);
    drafter.Forget(SequenceOf(1, {}), request);
    return job.drafts;
  }
  static sched::Sequence SequenceOf(int id, const Tokens& tokens) {
    sched::Sequence sequence;
    sequence.id = SequenceId{id};
    sequence.tokens = tokens;
    sequence.prompt_tokens = tokens.empty() ? 0 : 1;
    return sequence;
  }
  static void Finish(SuffixDrafter& drafter, const Tokens& tokens, const std::string& salt) {
    sched::Request request;
    request.cache_salt = salt;
    drafter.Forget(SequenceOf(2, tokens), request);
  }
};

TEST_F(SuffixDrafterTest, WhatFollowedMostOftenIsDrafted) {
  SuffixDrafter drafter(OutputSharing::kOff);
  EXPECT_EQ(Draft(drafter, {1, 2, 3, 4, 9, 1, 2, 3, 4, 8, 1, 2, 3, 5, 7, 1, 2}, "", 2),
            (Tokens{3, 4}));
}

TEST_F(SuffixDrafterTest, EarlierOutputsHelpThoseOfTheSameSaltAlone) {
  SuffixDrafter drafter(OutputSharing::kSameSalt);
  Finish(drafter, {0, 11, 12, 13, 14, 15}, "a");
  EXPECT_EQ(Draft(drafter, {9, 11, 12}, "a", 3), (Tokens{13, 14, 15}));
  EXPECT_TRUE(Draft(drafter, {9, 11, 12}, "b", 3).empty());
  EXPECT_TRUE(Draft(drafter, {9, 11, 12}, "", 3).empty());
  SuffixDrafter alone(OutputSharing::kOff);
  Finish(alone, {0, 11, 12, 13, 14, 15}, "a");
  EXPECT_TRUE(Draft(alone, {9, 11, 12}, "a", 3).empty());
}

TEST_F(SuffixDrafterTest, MemoryIsBoundedAndTheOldestOutputsGoFirst) {
  SuffixDrafter drafter(OutputSharing::kSameSalt);
  base::CounterRng rng(3, 0, 0);
  Finish(drafter, {0, 9001, 9002, 9003}, "a");
  size_t most = 0;
  for (int i = 0; i < 40; ++i) {
    Tokens output = {0};
    for (int t = 0; t < 4000; ++t) output.push_back(static_cast<TokenId>(rng.NextBelow(5000)));
    Finish(drafter, output, "a");
    most = std::max(most, drafter.bytes());
  }
  EXPECT_LT(most, size_t{2} * SuffixDrafter::kTokensPerGeneration * 300);
  EXPECT_TRUE(Draft(drafter, {5, 9001, 9002}, "a", 1).empty());
  for (size_t salt = 0; salt < SuffixDrafter::kSaltsMax; ++salt) {
    Finish(drafter, {0, 1, 2, 3}, "salt" + std::to_string(salt));
  }
  EXPECT_LT(drafter.bytes(), most / 10);  // the first salt was forgotten
}

}  // namespace
}  // namespace quire::engine
