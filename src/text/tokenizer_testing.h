// Small tokenizers made up by a seed, for tests of this folder.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/rng.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace quire::text {

// Text of letters, spaces, digits, line breaks and characters of two, three and four bytes.
inline std::string RandomText(base::CounterRng& rng, size_t characters) {
  static const std::vector<std::string> kCharacters = {
      "a",      "b",          "c",      "a",  "b",      " ",      " ",      "\n",
      "1",      "2",          ".",      "'",  "s",      "\u00e9", "\u0301", "\u4e2d",
      "\u2581", "\U0001F600", "\u200d", "\t", "\u00a0", "A"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    text += kCharacters[rng.NextBelow(kCharacters.size())];
  }
  return text;
}

// <unk>, <s>, </s>, the bytes, then letters and random pieces with random scores, some alike.
inline TokenizerSpec RandomSentencePieceSpec(base::CounterRng& rng, int pieces) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePieceBpe;
  const auto add = [&](std::string piece, TokenType type, float score) {
    if (std::find(spec.tokens.begin(), spec.tokens.end(), piece) != spec.tokens.end()) return;
    spec.tokens.push_back(std::move(piece));
    spec.types.push_back(type);
    spec.scores.push_back(score);
  };
  add("<unk>", TokenType::kUnknown, 0);
  add("<s>", TokenType::kControl, 0);
  add("</s>", TokenType::kControl, 0);
  for (int byte = 0; byte < 256; ++byte) {
    add(fmt::format("<0x{:02X}>", byte), TokenType::kByte, 0);
  }
  for (const char* letter : {"a", "b", "c", "\u2581", ".", "\u4e2d"}) {
    add(letter, TokenType::kNormal, -1000);
  }
  for (int i = 0; i < pieces; ++i) {
    std::string piece;
    const size_t length = 2 + rng.NextBelow(4);
    for (size_t k = 0; k < length; ++k) {
      const char* letters[] = {"a", "b", "c", "\u2581", "\u4e2d", "\u00e9"};
      piece += letters[rng.NextBelow(std::size(letters))];
    }
    add(piece, TokenType::kNormal, -static_cast<float>(rng.NextBelow(40)));
  }
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.prefix_tokens = {1};
  spec.byte_fallback = true;
  spec.strip_leading_space = true;
  spec.normalizer.emplace_back(SentencePieceStep{});
  spec.added_tokens.push_back({.id = 1, .content = "<s>", .special = true});
  spec.added_tokens.push_back({.id = 2, .content = "</s>", .special = true});
  return spec;
}

// The 256 bytes, random merges, and <|end|>, a control token; split as `pretokenizer` says.
inline TokenizerSpec RandomByteLevelSpec(base::CounterRng& rng, int merges,
                                         std::string_view pretokenizer = "gpt-2") {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kByteLevelBpe;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(ByteLetter(static_cast<uint8_t>(byte)));
  }
  // Most merges join what random texts are made of.
  std::vector<std::string> parts;
  for (const char byte : std::string("aabbc  \n1.\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80")) {
    parts.emplace_back(ByteLetter(static_cast<uint8_t>(byte)));
  }
  for (int i = 0; i < merges; ++i) {
    const std::string left = parts[rng.NextBelow(parts.size())];
    const std::string right = parts[rng.NextBelow(parts.size())];
    const std::string joined = left + right;
    if (joined.size() > 24) continue;
    if (std::find(spec.tokens.begin(), spec.tokens.end(), joined) == spec.tokens.end()) {
      spec.tokens.push_back(joined);
      parts.push_back(joined);
    }
    spec.merges.emplace_back(left, right);
  }
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  const TokenId end = static_cast<TokenId>(spec.tokens.size());
  spec.tokens.emplace_back("<|end|>");
  spec.types.push_back(TokenType::kControl);
  spec.added_tokens.push_back({.id = end, .content = "<|end|>", .special = true});
  spec.eos = end;
  spec.pretokenizer = FindPretokenizer(pretokenizer).value().steps;
  return spec;
}

}  // namespace quire::text
