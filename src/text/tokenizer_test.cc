#include "text/tokenizer.h"

#include <chrono>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer_testing.h"

namespace quire::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 90210;

Tokenizer Make(TokenizerSpec spec) {
  Result<Tokenizer> tokenizer = Tokenizer::Create(std::move(spec));
  return std::move(tokenizer).value();
}

// --- Naive twins: look at every pair each time, by text ---

std::vector<TokenId> NaiveSentencePiece(const TokenizerSpec& spec, const std::string& text) {
  std::map<std::string, TokenId> ids;
  for (size_t id = 259; id < spec.tokens.size(); ++id) {  // behind the special and byte tokens
    ids.emplace(spec.tokens[id], static_cast<TokenId>(id));
  }
  std::string escaped = text.empty() ? "" : "\u2581";
  for (const char c : text) escaped += c == ' ' ? "\u2581" : std::string(1, c);
  std::vector<std::string> symbols;
  for (size_t at = 0; at < escaped.size(); at += CharacterLength(escaped[at])) {
    symbols.push_back(escaped.substr(at, CharacterLength(escaped[at])));
  }
  while (true) {
    std::optional<size_t> best;
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ids.find(symbols[i] + symbols[i + 1]);
      if (found == ids.end()) continue;
      const float score = spec.scores[found->second];
      if (!best || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (!best) break;
    symbols[*best] += symbols[*best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
  std::vector<TokenId> out;
  for (const std::string& symbol : symbols) {
    const auto found = ids.find(symbol);
    if (found != ids.end()) {
      out.push_back(found->second);
      continue;
    }
    for (const char byte : symbol) out.push_back(3 + static_cast<uint8_t>(byte));
  }
  return out;
}

std::vector<TokenId> NaiveByteLevelWord(const TokenizerSpec& spec, std::string_view word) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    ranks.try_emplace(spec.merges[rank], rank);
  }
  std::vector<std::string> symbols;
  for (const char byte : word) symbols.emplace_back(ByteLetter(static_cast<uint8_t>(byte)));
  while (true) {
    std::optional<size_t> best;
    size_t best_rank = ranks.size() + spec.merges.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (!best) break;
    symbols[*best] += symbols[*best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
  }
  std::vector<TokenId> out;
  for (const std::string& symbol : symbols) {
    out.push_back(static_cast<TokenId>(std::find(spec.tokens.begin(), spec.tokens.end(), symbol) -
                                       spec.tokens.begin()));
  }
  return out;
}

TEST(SentencePiece, EqualsTheNaiveTwin) {
  for (uint64_t round = 0; round < 60; ++round) {
    base::CounterRng rng(kSeed, 1, round);
    const TokenizerSpec spec = RandomSentencePieceSpec(rng, 60);
    const Tokenizer tokenizer = Make(spec);
    for (int k = 0; k < 10; ++k) {
      SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round << " text " << k);
      const std::string text = RandomText(rng, rng.NextBelow(80));
      ASSERT_EQ(tokenizer.Encode(text), NaiveSentencePiece(spec, text)) << text;
    }
  }
}

TEST(SentencePiece, DecodingGivesTheTextBack) {
  for (uint64_t round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 2, round);
    const Tokenizer tokenizer = Make(RandomSentencePieceSpec(rng, 20));
    std::string text = RandomText(rng, rng.NextBelow(40));
    const std::string decoded = tokenizer.Decode(tokenizer.Encode(text));
    for (size_t at = text.find("\u2581"); at != std::string::npos; at = text.find("\u2581")) {
      text.replace(at, 3, " ");  // SentencePiece's own space cannot be told from one
    }
    ASSERT_EQ(decoded, text);
  }
}

TEST(ByteLevel, EqualsTheNaiveTwinWordByWord) {
  for (uint64_t round = 0; round < 60; ++round) {
    base::CounterRng rng(kSeed, 3, round);
    TokenizerSpec spec = RandomByteLevelSpec(rng, 80);
    spec.pretokenizer.clear();  // one word
    const Tokenizer tokenizer = Make(spec);
    for (int k = 0; k < 10; ++k) {
      SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round << " text " << k);
      const std::string text = RandomText(rng, rng.NextBelow(60));
      ASSERT_EQ(tokenizer.Encode(text), NaiveByteLevelWord(spec, text)) << text;
    }
  }
}

TEST(ByteLevel, DecodingGivesTheTextBackWithEveryPretokenizer) {
  for (const char* name :
       {"gpt-2", "llama-bpe", "qwen2", "deepseek-coder", "falcon", "starcoder", "tekken", ""}) {
    for (uint64_t round = 0; round < 60; ++round) {
      SCOPED_TRACE(testing::Message() << name << " seed " << kSeed << " round " << round);
      base::CounterRng rng(kSeed, 4, round);
      const Tokenizer tokenizer = Make(RandomByteLevelSpec(rng, 40, name));
      const std::string text = RandomText(rng, rng.NextBelow(60));
      ASSERT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
    }
  }
}

TEST(ByteLevel, MergesNeverCrossAWord) {
  base::CounterRng rng(kSeed, 5, 0);
  const TokenizerSpec spec = RandomByteLevelSpec(rng, 80);
  const Tokenizer tokenizer = Make(spec);
  std::vector<TokenId> expected;
  for (const char* word : {"ab", " ab", " 12", "..", "'s", "\n", " c"}) {
    const std::vector<TokenId> ids = NaiveByteLevelWord(spec, word);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer.Encode("ab ab 12..'s\n c"), expected);
}

TEST(ByteLevel, IgnoringMergesTakesAWordThatIsATokenWhole) {
  base::CounterRng rng(kSeed, 6, 0);
  TokenizerSpec spec = RandomByteLevelSpec(rng, 0);
  spec.tokens.push_back("xyz");
  spec.types.push_back(TokenType::kNormal);
  EXPECT_EQ(Make(spec).Encode("xyz").size(), 3u);
  spec.ignore_merges = true;
  EXPECT_THAT(Make(spec).Encode("xyz"), ElementsAre(257));
}

// --- Special and added tokens ---

TEST(Tokenizer, ControlTokensAreParsedOnlyOnRequest) {
  base::CounterRng rng(kSeed, 7, 0);
  const Tokenizer tokenizer = Make(RandomByteLevelSpec(rng, 0));
  EXPECT_EQ(tokenizer.Encode("a<|end|>b").size(), 9u);
  EXPECT_THAT(tokenizer.Encode("a<|end|>b", {.parse_special = true}), ElementsAre('a', 256, 'b'));
  EXPECT_TRUE(tokenizer.IsControl(256));
  EXPECT_EQ(tokenizer.FindToken("<|end|>"), 256);
}

TEST(Tokenizer, SpecialTokensAreAddedOnlyOnRequest) {
  base::CounterRng rng(kSeed, 8, 0);
  TokenizerSpec spec = RandomSentencePieceSpec(rng, 0);
  spec.suffix_tokens = {2};
  const Tokenizer tokenizer = Make(spec);
  EXPECT_THAT(tokenizer.Encode(""), ElementsAre());
  EXPECT_THAT(tokenizer.Encode("", {.add_special = true}), ElementsAre(1, 2));
  EXPECT_TRUE(tokenizer.adds_bos());
}

TEST(Tokenizer, EachStretchBetweenSpecialTokensHasItsDummyPrefix) {
  base::CounterRng rng(kSeed, 9, 0);
  TokenizerSpec spec = RandomSentencePieceSpec(rng, 0);
  const TokenId a = 259;
  const TokenId space = 262;
  const EncodeOptions parse{.parse_special = true};
  EXPECT_THAT(Make(spec).Encode("a<s>a", parse), ElementsAre(space, a, 1, space, a));
  std::get<SentencePieceStep>(spec.normalizer[0]).dummy_prefix = PrependScheme::kFirst;
  EXPECT_THAT(Make(spec).Encode("a<s>a", parse), ElementsAre(space, a, 1, a));
}

TEST(Tokenizer, AddedTokensTakeWhiteSpaceAsTheyAreToldAndTheLongestWins) {
  base::CounterRng rng(kSeed, 10, 0);
  TokenizerSpec spec = RandomByteLevelSpec(rng, 0);
  const auto add = [&](AddedToken token) {
    token.id = static_cast<TokenId>(spec.tokens.size());
    spec.tokens.push_back(token.content);
    spec.types.push_back(TokenType::kUserDefined);
    spec.added_tokens.push_back(token);
    return token.id;
  };
  const TokenId x = add({.content = "<x"});
  const TokenId xx = add({.content = "<xx>", .lstrip = true, .rstrip = true});
  const TokenId word = add({.content = "cat", .single_word = true});
  const Tokenizer tokenizer = Make(spec);
  EXPECT_THAT(tokenizer.Encode(" \u2003<xx>\n <xx <x"), ElementsAre(xx, x, 'x', ' ', x));
  EXPECT_THAT(tokenizer.Encode("cat"), ElementsAre(word));
  EXPECT_EQ(tokenizer.Encode("cats").size(), 4u);
  EXPECT_EQ(tokenizer.Encode("\u00e9cat").size(), 5u);
}

TEST(Tokenizer, NormalizedTokensAreFoundInNormalizedText) {
  base::CounterRng rng(kSeed, 11, 0);
  TokenizerSpec spec = RandomByteLevelSpec(rng, 0);
  const TokenId id = static_cast<TokenId>(spec.tokens.size());
  spec.tokens.push_back("\u00e9!");
  spec.types.push_back(TokenType::kUserDefined);
  spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfc});
  spec.added_tokens.push_back({.id = id, .content = "\u00e9!", .normalized = true});
  EXPECT_THAT(Make(spec).Encode("e\u0301!"), ElementsAre(id));
  spec.added_tokens.back().normalized = false;
  EXPECT_GT(Make(spec).Encode("e\u0301!").size(), 1u);
}

TEST(SentencePiece, UnusedPiecesHelpMergingButAreTakenApart) {
  TokenizerSpec spec;
  spec.tokens = {"<unk>", "a", "b", "c", "ab", "abc"};
  spec.types = {TokenType::kUnknown, TokenType::kNormal, TokenType::kNormal,
                TokenType::kNormal,  TokenType::kUnused, TokenType::kNormal};
  spec.scores = {0, -9, -9, -9, -1, -2};
  spec.unk = 0;
  const Tokenizer tokenizer = Make(spec);
  EXPECT_THAT(tokenizer.Encode("abc"), ElementsAre(5));
  EXPECT_THAT(tokenizer.Encode("ab"), ElementsAre(1, 2));
  EXPECT_THAT(tokenizer.Encode("xyabz"), ElementsAre(0, 1, 2, 0));  // unknown ones are fused
}

TEST(SentencePiece, UserDefinedPiecesStayWhole) {
  TokenizerSpec spec;
  spec.tokens = {"<unk>", "a", "b", "ab", "bb", "ba"};
  spec.types.assign(6, TokenType::kNormal);
  spec.types[4] = TokenType::kUserDefined;
  spec.scores = {0, -9, -9, -1, -2, -3};
  spec.unk = 0;
  EXPECT_THAT(Make(spec).Encode("abba"), ElementsAre(1, 4, 1));
  spec.types[4] = TokenType::kNormal;
  EXPECT_THAT(Make(spec).Encode("abba"), ElementsAre(3, 5));
}

TEST(SentencePiece, ExtraWhiteSpaceGoesWhereTheModelSaysSo) {
  TokenizerSpec spec;
  spec.tokens = {"<unk>", "a", "\u2581"};
  spec.scores = {0, 0, 0};
  spec.unk = 0;
  spec.normalizer.emplace_back(SentencePieceStep{.remove_extra_whitespaces = true});
  const Tokenizer tokenizer = Make(spec);
  EXPECT_THAT(tokenizer.Encode("  a   a "), ElementsAre(2, 1, 2, 1));
  EXPECT_THAT(tokenizer.Encode("   "), ElementsAre());
}

// --- Bad input ---

TEST(Tokenizer, IllFormedTextCountsAsReplacementCharacters) {
  for (uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 12, round);
    std::string text = RandomText(rng, rng.NextBelow(20));
    for (char& c : text) {
      if (rng.NextBelow(4) == 0) c = static_cast<char>(rng.NextBelow(256));
    }
    const Tokenizer byte_level = Make(RandomByteLevelSpec(rng, 20));
    ASSERT_EQ(byte_level.Decode(byte_level.Encode(text)), ToValidUtf8(text));
    const Tokenizer pieces = Make(RandomSentencePieceSpec(rng, 20));
    ASSERT_EQ(pieces.Encode(text), pieces.Encode(ToValidUtf8(text)));
  }
}

TEST(Tokenizer, ABadSpecIsAnErrorThatSaysWhy) {
  base::CounterRng rng(kSeed, 13, 0);
  const TokenizerSpec good = RandomByteLevelSpec(rng, 5);
  const auto message = [](const TokenizerSpec& spec) {
    const Result<Tokenizer> tokenizer = Tokenizer::Create(spec);
    return tokenizer.ok() ? "" : tokenizer.error().message;
  };
  TokenizerSpec spec = good;
  spec.merges.emplace_back("zz", "zz");
  EXPECT_THAT(message(spec), HasSubstr("zzzz"));
  spec = good;
  spec.bos = 100'000;
  EXPECT_THAT(message(spec), HasSubstr("100000"));
  spec = good;
  spec.types.pop_back();
  EXPECT_THAT(message(spec), HasSubstr("types"));
  spec = good;
  spec.added_tokens[0].id = -1;
  EXPECT_THAT(message(spec), HasSubstr("-1"));
  spec = good;
  spec.pretokenizer = {SplitStep{.pattern = "("}};
  EXPECT_THAT(message(spec), HasSubstr("regular expression"));
  EXPECT_THAT(message({}), HasSubstr("0 tokens"));
  spec = RandomSentencePieceSpec(rng, 5);
  spec.scores.pop_back();
  EXPECT_THAT(message(spec), HasSubstr("scores"));
}

TEST(Tokenizer, WhatWouldFillMemoryIsRefused) {
  base::CounterRng rng(kSeed, 18, 0);
  TokenizerSpec spec = RandomByteLevelSpec(rng, 5);
  for (int i = 0; i < 40; ++i) {
    spec.normalizer.push_back(ReplaceStep{.pattern = "a", .content = "aa"});
  }
  EXPECT_FALSE(Tokenizer::Create(spec).ok());
  spec.normalizer = {ReplaceStep{.pattern = "a", .content = "aaa"}};
  EXPECT_TRUE(Tokenizer::Create(spec).ok());
  spec.added_tokens[0].content = std::string(10'000'000, 'x');
  EXPECT_FALSE(Tokenizer::Create(spec).ok());
}

TEST(Tokenizer, EndTokensAreEosAndTheEndsOfTurns) {
  base::CounterRng rng(kSeed, 19, 0);
  TokenizerSpec spec = RandomByteLevelSpec(rng, 0);  // <|end|>, id 256, is a control token
  spec.eos = 7;
  spec.end_tokens = {9};
  EXPECT_THAT(Make(spec).end_tokens(), ElementsAre(7, 9, 256));
}

TEST(Tokenizer, IdsOutsideTheVocabularyGiveNoText) {
  base::CounterRng rng(kSeed, 14, 0);
  const Tokenizer tokenizer = Make(RandomByteLevelSpec(rng, 5));
  const std::vector<TokenId> ids = {-1, 'a', 1 << 30};
  EXPECT_EQ(tokenizer.Decode(ids), "a");
  EXPECT_EQ(tokenizer.TokenBytes(-1), "");
}

// --- Time ---

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Quadratic work on these would take minutes. The bound leaves room for sanitizers and busy
// machines.
constexpr double kSecondsMax = 20;

TEST(Tokenizer, RunsOfOneCharacterTakeLinearTime) {
  base::CounterRng rng(kSeed, 15, 0);
  const Tokenizer pieces = Make(RandomSentencePieceSpec(rng, 200));
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "deepseek-coder", "falcon", "tekken"}) {
    const Tokenizer byte_level = Make(RandomByteLevelSpec(rng, 200, name));
    for (const char* unit : {"a", " ", "\n", "1", "\u4e2d", "\U0001F600", "\u0301", "'", " \n"}) {
      std::string run;
      for (int i = 0; i < 100'000; ++i) run += unit;
      std::string decoded;
      EXPECT_LT(Seconds([&] { decoded = byte_level.Decode(byte_level.Encode(run)); }), kSecondsMax)
          << name << " '" << unit << "'";
      EXPECT_TRUE(decoded == run) << name << " '" << unit << "'";
    }
  }
  for (const char* unit : {"a", " ", "\n", "1", "\u4e2d", "\U0001F600", "ab", "a "}) {
    std::string run;
    for (int i = 0; i < 100'000; ++i) run += unit;
    std::string decoded;
    EXPECT_LT(Seconds([&] { decoded = pieces.Decode(pieces.Encode(run)); }), kSecondsMax) << unit;
    EXPECT_TRUE(decoded == run) << unit;
  }
}

TEST(Tokenizer, CombiningMarksInAnyOrderAreNormalizedInLinearTime) {
  base::CounterRng rng(kSeed, 16, 0);
  TokenizerSpec spec = RandomByteLevelSpec(rng, 5, "qwen2");
  spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfc});
  const Tokenizer tokenizer = Make(spec);
  std::string marks = "a";
  for (int i = 0; i < 100'000; ++i) marks += "\u0301\u0323";  // above, below: swapped by NFC
  EXPECT_LT(Seconds([&] { EXPECT_FALSE(tokenizer.Encode(marks).empty()); }), kSecondsMax);
}

// --- Threads ---

TEST(Tokenizer, ThreadsShareOne) {
  base::CounterRng rng(kSeed, 17, 0);
  const Tokenizer tokenizer = Make(RandomByteLevelSpec(rng, 80));
  const std::string text = RandomText(rng, 2000);
  const std::vector<TokenId> expected = tokenizer.Encode(text);
  std::vector<std::vector<TokenId>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = tokenizer.Encode(text); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace quire::text
