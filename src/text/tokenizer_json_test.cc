#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace quire::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 31337;

// As Llama 3 and Qwen write it, in small.
constexpr std::string_view kByteLevel = R"json({
  "version": "1.0",
  "added_tokens": [
    {"id": 8, "content": "<|s|>", "special": true, "normalized": false},
    {"id": 9, "content": "<think>", "special": false, "normalized": false, "rstrip": true}
  ],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}| ?\\p{L}+|\\s+"}, "behavior": "Isolated"},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "post_processor": {"type": "Sequence", "processors": [
    {"type": "ByteLevel"},
    {"type": "TemplateProcessing",
     "single": [{"SpecialToken": {"id": "<|s|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}],
     "special_tokens": {"<|s|>": {"id": "<|s|>", "ids": [8], "tokens": ["<|s|>"]}}}]},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120ab": 4, "1": 5,
                                     "\u00c3": 6, "\u00a9": 7},
            "merges": ["a b", ["\u0120", "ab"]]}
})json";

// As Llama 2 and Phi 3 write it.
constexpr std::string_view kSentencePiece = R"json({
  "added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                   {"id": 1, "content": "<s>", "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
  "pre_tokenizer": null,
  "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "<0xC3>": 2, "<0xA9>": 3, "\u2581": 4, "a": 5,
                      "\u2581a": 6},
            "merges": ["\u2581 a"]}
})json";

std::string Changed(std::string_view json, std::string_view from, std::string_view to) {
  std::string changed(json);
  changed.replace(changed.find(from), from.size(), to);
  return changed;
}

TEST(TokenizerJson, ByteLevelModelsAreRead) {
  const TokenizerSpec spec = ParseTokenizerJson(kByteLevel).value();
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_THAT(tokenizer.Encode("ab ab11"), ElementsAre(3, 4, 5, 5));
  EXPECT_THAT(tokenizer.Encode("e\u0301"), ElementsAre(6, 7));  // one character after NFC
  EXPECT_THAT(tokenizer.Encode("a<|s|>", {.add_special = true, .parse_special = true}),
              ElementsAre(8, 0, 8));
  EXPECT_THAT(tokenizer.Encode("<think> \n a"), ElementsAre(9, 0));
  EXPECT_EQ(tokenizer.bos(), 8);
  EXPECT_EQ(tokenizer.Type(8), TokenType::kControl);
  EXPECT_EQ(tokenizer.Type(9), TokenType::kUserDefined);
  EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{4, 6, 7, 9}), " ab\u00e9<think>");
}

TEST(TokenizerJson, SentencePieceModelsAreRead) {
  const Tokenizer tokenizer = Tokenizer::Create(ParseTokenizerJson(kSentencePiece).value()).value();
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::kSentencePieceBpe);
  EXPECT_THAT(tokenizer.Encode("a a"), ElementsAre(6, 6));
  EXPECT_THAT(tokenizer.Encode("a\u00e9"), ElementsAre(6, 2, 3));
  EXPECT_THAT(tokenizer.Encode("zz"), ElementsAre(4, 0));
  EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{6, 2, 3, 6}), "a\u00e9 a");
}

TEST(TokenizerJson, WhatIsNotSupportedIsRefusedByName) {
  const auto message = [](const std::string& json) {
    const Result<TokenizerSpec> spec = ParseTokenizerJson(json);
    return spec.ok() ? "" : spec.error().message;
  };
  EXPECT_THAT(message(Changed(kByteLevel, "\"BPE\"", "\"Unigram\"")), HasSubstr("Unigram"));
  EXPECT_THAT(message(Changed(kByteLevel, "\"NFC\"", "\"Nmt\"")), HasSubstr("Nmt"));
  EXPECT_THAT(message(Changed(kByteLevel, "\"Split\"", "\"UnicodeScripts\"")),
              HasSubstr("UnicodeScripts"));
  EXPECT_THAT(message(Changed(kByteLevel, "\"id\": 8", "\"id\": 2147483647")), HasSubstr("far"));
  EXPECT_THAT(message("{\"model\": "), HasSubstr("JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("no model"));
}

TEST(TokenizerConfig, SpecialTokensAreStringsOrObjects) {
  TokenizerSpec spec = ParseTokenizerJson(kByteLevel).value();
  const TokenizerConfig config = ParseTokenizerConfig(R"json({
    "bos_token": {"content": "ab"}, "eos_token": "<think>", "pad_token": null,
    "add_bos_token": true, "add_eos_token": true,
    "chat_template": [{"name": "default", "template": "one"}, {"name": "tools", "template": "two"}]
  })json")
                                     .value();
  ApplySpecialTokens(config, spec);
  EXPECT_EQ(spec.bos, 3);
  EXPECT_EQ(spec.eos, 9);
  EXPECT_FALSE(spec.pad.has_value());
  EXPECT_THAT(spec.prefix_tokens, ElementsAre(3));
  EXPECT_THAT(spec.suffix_tokens, ElementsAre(9));
  ASSERT_EQ(config.chat_templates.size(), 2u);
  EXPECT_EQ(config.chat_templates[1].name, "tools");
  EXPECT_EQ(ParseTokenizerConfig(R"({"chat_template": "x"})").value().chat_templates[0].source,
            "x");
}

// Overwrites, removes and repeats bytes of `original`.
std::string Mutated(std::string_view original, base::CounterRng& rng) {
  std::string mutated(original);
  const uint64_t changes = 1 + rng.NextBelow(4);
  for (uint64_t i = 0; i < changes && !mutated.empty(); ++i) {
    const size_t at = rng.NextBelow(mutated.size());
    const size_t length = 1 + rng.NextBelow(20);
    switch (rng.NextBelow(4)) {
      case 0:
        mutated[at] = static_cast<char>(rng.NextBelow(256));
        break;
      case 1:
        mutated.erase(at, length);
        break;
      case 2:
        mutated.insert(at, mutated.substr(rng.NextBelow(mutated.size()), length));
        break;
      default:
        mutated[at] = static_cast<char>('0' + rng.NextBelow(10));
        break;
    }
  }
  return mutated;
}

TEST(TokenizerJson, MutatedFilesGiveATokenizerOrAnError) {
  int errors = 0;
  for (uint64_t round = 0; round < 1000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    base::CounterRng rng(kSeed, 1, round);
    const std::string json = Mutated(round % 2 == 0 ? kByteLevel : kSentencePiece, rng);
    Result<TokenizerSpec> spec = ParseTokenizerJson(json);
    if (!spec.ok()) {
      ++errors;
      EXPECT_FALSE(spec.error().message.empty());
      continue;
    }
    const Result<Tokenizer> tokenizer = Tokenizer::Create(std::move(*spec));
    if (!tokenizer.ok()) {
      ++errors;
      continue;
    }
    tokenizer->Decode(tokenizer->Encode("ab a1 \u00e9<|s|><s>", {.add_special = true}));
  }
  EXPECT_GT(errors, 300);
  EXPECT_LT(errors, 1000);
}

}  // namespace
}  // namespace quire::text
