#include "text/sentencepiece_model.h"

#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "testing/shared_data.h"
#include "text/json_access.h"
#include "text/read_file.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace quire::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 60601;

// --- Writes small model files ---

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Integer(int field, uint64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
}

std::string Bytes(int field, std::string_view bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2).append(Varint(bytes.size())).append(bytes);
}

std::string Float(int field, float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return Varint(static_cast<uint64_t>(field) << 3 | 5) + bytes;
}

std::string Piece(std::string_view text, float score, TokenType type = TokenType::kNormal) {
  return Bytes(1, Bytes(1, text) + Float(2, score) + Integer(3, static_cast<uint64_t>(type)));
}

std::string SmallModel(std::string_view normalizer = "", uint64_t model_type = 2) {
  return Piece("<unk>", 0, TokenType::kUnknown) + Piece("<s>", 0, TokenType::kControl) +
         Piece("</s>", 0, TokenType::kControl) + Piece("\u2581", -3) + Piece("a", -3) +
         Piece("\u2581a", -1) + Piece("<0x41>", 0, TokenType::kByte) +
         Bytes(2, Integer(3, model_type) + Integer(35, 1) + Bytes(44, " ?? ")) +
         Bytes(3, normalizer);
}

TEST(SentencePieceModel, ItsPartsAreRead) {
  const TokenizerSpec spec =
      ParseSentencePieceModel(SmallModel(Integer(4, 0) + Integer(3, 1))).value();
  EXPECT_EQ(spec.unk, 0);
  EXPECT_EQ(spec.bos, 1);
  EXPECT_EQ(spec.eos, 2);
  EXPECT_FALSE(spec.pad.has_value());
  EXPECT_TRUE(spec.byte_fallback);
  EXPECT_TRUE(spec.strip_leading_space);
  EXPECT_EQ(spec.scores[5], -1.0F);
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_THAT(tokenizer.Encode("aA a", {.add_special = true}), ElementsAre(1, 5, 6, 5));
}

TEST(SentencePieceModel, NoDummyPrefixWhereTheModelHasNone) {
  const Tokenizer tokenizer =
      Tokenizer::Create(ParseSentencePieceModel(SmallModel(Integer(3, 0) + Integer(4, 0))).value())
          .value();
  EXPECT_THAT(tokenizer.Encode("a a"), ElementsAre(4, 5));
  EXPECT_FALSE(tokenizer.drops_leading_space());
}

// A double-array trie with the one rule "B" -> "a", written by hand: the root's children start at
// unit 1; 'B' leads to 1 ^ 0x42, a node whose leaf lies beside it.
std::string OneRule() {
  std::vector<uint32_t> units(256, 0);
  const uint32_t node = 1 ^ 'B';
  units[0] = 1 << 10;                    // offset 1
  units[node] = 4 << 10 | 1 << 8 | 'B';  // has a leaf, at node ^ 4
  units[node ^ 4] = 0x80000000u;         // value 0: the replacement's place
  std::string blob(4 + units.size() * 4, '\0');
  const uint32_t bytes = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(blob.data(), &bytes, 4);
  std::memcpy(blob.data() + 4, units.data(), bytes);
  return blob.append("a\0", 2);
}

TEST(SentencePieceModel, NormalizationRulesOfTheFileAreApplied) {
  const std::string normalizer = Bytes(2, OneRule()) + Integer(4, 0);
  const Tokenizer tokenizer =
      Tokenizer::Create(ParseSentencePieceModel(SmallModel(normalizer)).value()).value();
  EXPECT_THAT(tokenizer.Encode("B aB"), ElementsAre(5, 5, 4));
}

TEST(SentencePieceModel, OtherKindsAndDamageAreRefused) {
  const auto message = [](const std::string& bytes) {
    Result<TokenizerSpec> spec = ParseSentencePieceModel(bytes);
    if (!spec.ok()) return spec.error().message;
    const Result<Tokenizer> tokenizer = Tokenizer::Create(std::move(*spec));
    return tokenizer.ok() ? "" : tokenizer.error().message;
  };
  EXPECT_THAT(message(SmallModel("", 1)), HasSubstr("unigram"));
  EXPECT_THAT(message(SmallModel("", 77)), HasSubstr("unknown"));
  EXPECT_THAT(message(""), HasSubstr("damaged"));
  EXPECT_THAT(message("\x0a\xff\xff\xff\xff\x0f"), HasSubstr("damaged"));
  EXPECT_THAT(message(SmallModel(Bytes(2, "xyz"))), HasSubstr("precompiled_charsmap"));
  EXPECT_FALSE(LoadSentencePieceModel("no/such/file").ok());
}

TEST(SentencePieceModel, MutatedFilesGiveATokenizerOrAnError) {
  const std::string original = SmallModel(Bytes(2, OneRule()));
  int errors = 0;
  for (uint64_t round = 0; round < 1000; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 1, round);
    std::string bytes = original;
    for (uint64_t i = 0; i < 1 + rng.NextBelow(6); ++i) {
      bytes[rng.NextBelow(bytes.size())] = static_cast<char>(rng.NextBelow(256));
    }
    if (rng.NextBelow(3) == 0) bytes.resize(rng.NextBelow(bytes.size()));
    Result<TokenizerSpec> spec = ParseSentencePieceModel(bytes);
    if (!spec.ok()) {
      ++errors;
      continue;
    }
    const Result<Tokenizer> tokenizer = Tokenizer::Create(std::move(*spec));
    if (!tokenizer.ok()) {
      ++errors;
      continue;
    }
    tokenizer->Decode(tokenizer->Encode("aB A\u00e9<s> \xff", {.parse_special = true}));
  }
  EXPECT_GT(errors, 100);
  EXPECT_LT(errors, 1000);
}

// --- The bundled model ---

// `name` in models/, or where that is not there yet, in the shared data it comes from.
std::string Bundled(const std::string& name) {
  const std::string path = "models/" + name;
  return std::filesystem::exists(path) ? path : testing::SharedData("demo/" + name).value_or(path);
}

TEST(BundledTokenizer, GivesTheIdsItsModelWasTrainedWith) {
  const TokenizerFiles files = LoadTokenizerFiles(Bundled("draft")).value();
  const Tokenizer tokenizer = Tokenizer::Create(files.spec).value();
  const std::string text = ReadFile(Bundled("golden.json")).value();
  const boost::json::value golden = ParseJson(text, "golden.json").value();
  const boost::json::array* cases = ArrayMember(golden, "tokenization");
  ASSERT_NE(cases, nullptr);
  ASSERT_GE(cases->size(), 13u);
  for (const boost::json::value& item : *cases) {
    const std::string content(StringMember(item, "text").value());
    std::vector<TokenId> ids;
    for (const boost::json::value& id : *ArrayMember(item, "ids")) {
      ids.push_back(static_cast<TokenId>(AsInt(id).value()));
    }
    EXPECT_EQ(tokenizer.Encode(content), ids) << content;
    EXPECT_EQ(tokenizer.Decode(ids), content);
  }
}

TEST(BundledTokenizer, KnowsItsSpecialTokensAndItsTemplate) {
  const TokenizerFiles files = LoadTokenizerFiles(Bundled("draft")).value();
  const Tokenizer tokenizer = Tokenizer::Create(files.spec).value();
  EXPECT_EQ(tokenizer.vocab_size(), 4096);
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_TRUE(tokenizer.adds_bos());
  const std::vector<TokenId> ids =
      tokenizer.Encode("<|user|>Hi<|end|>", {.add_special = true, .parse_special = true});
  ASSERT_GE(ids.size(), 4u);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[1], 4089);
  EXPECT_EQ(ids.back(), 4091);
  EXPECT_TRUE(tokenizer.IsControl(4089));
  ASSERT_EQ(files.chat_templates.size(), 1u);
  EXPECT_THAT(files.chat_templates[0].source, HasSubstr("<|end|>"));
}

}  // namespace
}  // namespace quire::text
