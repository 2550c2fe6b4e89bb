#include "engine/token_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kVocabSize = 70;

std::vector<TokenId> Bits(std::span<const uint32_t> words) {
  std::vector<TokenId> tokens;
  for (size_t t = 0; t < words.size() * 32; ++t) {
    if ((words[t / 32] >> (t % 32)) & 1u) tokens.push_back(static_cast<TokenId>(t));
  }
  return tokens;
}

TEST(TokenFilter, WithoutWishesEverythingMayCome) {
  const sched::SamplingParams params;
  TokenFilter filter(params, std::vector<TokenId>{2}, kVocabSize);
  const auto limits = filter.Next({}, {});
  EXPECT_THAT(limits.banned, IsEmpty());
  EXPECT_THAT(limits.allowed, IsEmpty());
}

TEST(TokenFilter, EndsWaitForMinTokens) {
  sched::SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {9};
  TokenFilter filter(params, std::vector<TokenId>{2}, kVocabSize);
  EXPECT_THAT(filter.Next(std::vector<TokenId>{5}, {}).banned, ElementsAre(9, 2));
  EXPECT_THAT(filter.Next(std::vector<TokenId>{5, 6}, {}).banned, IsEmpty());
}

TEST(TokenFilter, TheLastTokenOfABadWordMayNotFollowTheOthers) {
  sched::SamplingParams params;
  params.bad_words = {{7}, {3, 4}, {3, 4, 5}};
  TokenFilter filter(params, {}, kVocabSize);
  EXPECT_THAT(filter.Next({}, {}).banned, ElementsAre(7));
  EXPECT_THAT(filter.Next(std::vector<TokenId>{1, 3}, {}).banned, ElementsAre(7, 4));
  EXPECT_THAT(filter.Next(std::vector<TokenId>{3, 4}, {}).banned, ElementsAre(7, 5));
  EXPECT_THAT(filter.Next(std::vector<TokenId>{4, 1}, {}).banned, ElementsAre(7));
}

TEST(TokenFilter, AllowedTokensLieWithinWhatTheGrammarAllows) {
  sched::SamplingParams params;
  params.allowed_token_ids = {0, 31, 32, 69};
  TokenFilter filter(params, {}, kVocabSize);
  EXPECT_THAT(Bits(filter.Next({}, {}).allowed), ElementsAre(0, 31, 32, 69));
  const std::vector<uint32_t> grammar = {0x80000000u, 0u, ~0u};
  EXPECT_THAT(Bits(filter.Next({}, grammar).allowed), ElementsAre(31, 69));
}

}  // namespace
}  // namespace quire::engine
