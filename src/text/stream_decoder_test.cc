#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include "text/tokenizer_testing.h"

namespace quire::text {
namespace {

constexpr uint64_t kSeed = 5150;

Tokenizer Make(TokenizerSpec spec) {
  return Tokenizer::Create(std::move(spec)).value();
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     const DecodeOptions& options) {
  StreamDecoder decoder(tokenizer, options);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = decoder.Append(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    text += piece;
  }
  return text + decoder.Finish();
}

TEST(StreamDecoder, PiecesConcatenateToTheDecodedWhole) {
  for (uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 1, round);
    const Tokenizer tokenizer =
        Make(round % 2 == 0 ? RandomSentencePieceSpec(rng, 30) : RandomByteLevelSpec(rng, 30));
    std::vector<TokenId> ids(rng.NextBelow(30));
    for (TokenId& id : ids) id = static_cast<TokenId>(rng.NextBelow(tokenizer.vocab_size() + 1));
    for (const bool skip : {false, true}) {
      for (const TextStart start : {TextStart::kBeginning, TextStart::kContinuation}) {
        const DecodeOptions options{.skip_special = skip, .start = start};
        ASSERT_EQ(Streamed(tokenizer, ids, options), tokenizer.Decode(ids, options));
      }
    }
  }
}

TEST(StreamDecoder, DecodedBytesAreTheTokensBytesRepaired) {
  for (uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 2, round);
    const Tokenizer tokenizer = Make(RandomByteLevelSpec(rng, 30));
    std::vector<TokenId> ids(rng.NextBelow(30));
    std::string bytes;
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(rng.NextBelow(tokenizer.vocab_size()));
      bytes += tokenizer.TokenBytes(id);
    }
    ASSERT_EQ(tokenizer.Decode(ids), ToValidUtf8(bytes));
  }
}

TEST(StreamDecoder, HoldsBackAnIncompleteCharacterOnly) {
  base::CounterRng rng(kSeed, 3, 0);
  const Tokenizer tokenizer = Make(RandomSentencePieceSpec(rng, 0));
  const auto byte = [](uint8_t value) { return static_cast<TokenId>(3 + value); };
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.Append(byte('x')), "x");
  EXPECT_EQ(decoder.Append(byte(0xf0)), "");
  EXPECT_EQ(decoder.Append(byte(0x9f)), "");
  EXPECT_EQ(decoder.Append(byte(0x98)), "");
  EXPECT_TRUE(decoder.HoldsBack());
  EXPECT_EQ(decoder.Append(byte(0x80)), "\U0001F600");
  EXPECT_EQ(decoder.Append(byte(0xe2)), "");
  EXPECT_EQ(decoder.Append(byte('y')), "\uFFFDy");  // certainly no character any more
  EXPECT_EQ(decoder.Append(byte(0xe2)), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
}

TEST(StreamDecoder, ACopyIsASnapshot) {
  base::CounterRng rng(kSeed, 4, 0);
  const Tokenizer tokenizer = Make(RandomSentencePieceSpec(rng, 0));
  StreamDecoder decoder(tokenizer);
  decoder.Append(3 + 0xc3);
  StreamDecoder snapshot = decoder;
  EXPECT_EQ(decoder.Append(3 + 0xa9), "\u00e9");
  EXPECT_EQ(snapshot.Append(3 + 'z'), "\uFFFDz");
}

TEST(StreamDecoder, DropsTheDummyPrefixAtTheBeginningOnly) {
  base::CounterRng rng(kSeed, 5, 0);
  const Tokenizer tokenizer = Make(RandomSentencePieceSpec(rng, 0));
  const std::vector<TokenId> ids = tokenizer.Encode("a b");
  EXPECT_EQ(tokenizer.Decode(ids), "a b");
  EXPECT_EQ(tokenizer.Decode(ids, {.start = TextStart::kContinuation}), " a b");
  EXPECT_EQ(tokenizer.StartAfter(ids), TextStart::kContinuation);
  const std::vector<TokenId> after_control = {1};
  EXPECT_EQ(tokenizer.StartAfter(after_control), TextStart::kBeginning);
  EXPECT_EQ(tokenizer.StartAfter({}), TextStart::kBeginning);
}

TEST(StreamDecoder, SkipsControlTokensOnRequest) {
  base::CounterRng rng(kSeed, 6, 0);
  const Tokenizer tokenizer = Make(RandomSentencePieceSpec(rng, 0));
  std::vector<TokenId> ids = tokenizer.Encode("a", {.add_special = true});
  ids.push_back(2);
  EXPECT_EQ(tokenizer.Decode(ids), "<s> a</s>");
  EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = true}), "a");
}

}  // namespace
}  // namespace quire::text
