#include "text/grammar_vocabulary.h"

#include <algorithm>

#include "base/check.h"

namespace quire::text {
namespace {

bool StandsForText(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kByte;
}

}  // namespace

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::Create(const Tokenizer& tokenizer,
                                                                   int mask_bits) {
  QUIRE_CHECK_GE(mask_bits, tokenizer.vocab_size());
  auto vocabulary = std::make_shared<GrammarVocabulary>();
  vocabulary->mask_bits_ = static_cast<uint32_t>(mask_bits);
  std::vector<TokenId>& tokens = vocabulary->tokens_;
  vocabulary->starts_.push_back(0);
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    if (StandsForText(tokenizer.Type(token)) && !tokenizer.TokenBytes(token).empty()) {
      vocabulary->bytes_ += tokenizer.TokenBytes(token);
      tokens.push_back(token);
    }
    vocabulary->starts_.push_back(vocabulary->bytes_.size());
  }
  const auto bytes = [&](TokenId token) { return vocabulary->bytes(token); };
  std::ranges::stable_sort(tokens, {}, bytes);

  std::vector<Node>& nodes = vocabulary->nodes_;
  nodes.push_back({});
  std::vector<uint32_t> path = {0};  // the nodes of the token before, from the root
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      nodes[path.back()].end = static_cast<uint32_t>(nodes.size());
    }
  };
  std::string_view before;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = bytes(tokens[i]);
    const auto differs = std::ranges::mismatch(before, text).in2;
    const auto common = static_cast<size_t>(differs - text.begin());
    close(common);
    for (size_t depth = common; depth < text.size(); ++depth) {
      nodes.push_back({.parent = path.back(),
                       .end = 0,
                       .tokens_begin = i,
                       .depth = static_cast<uint32_t>(depth + 1),
                       .byte = static_cast<uint8_t>(text[depth])});
      path.push_back(static_cast<uint32_t>(nodes.size() - 1));
    }
    vocabulary->longest_token_ =
        std::max(vocabulary->longest_token_, static_cast<uint32_t>(text.size()));
    before = text;
  }
  close(0);
  nodes[0].end = static_cast<uint32_t>(nodes.size());
  nodes.push_back({.tokens_begin = static_cast<uint32_t>(tokens.size())});
  return vocabulary;
}

std::string_view GrammarVocabulary::bytes(TokenId token) const {
  if (token < 0 || static_cast<size_t>(token) + 1 >= starts_.size()) return {};
  const auto index = static_cast<size_t>(token);
  return std::string_view(bytes_).substr(starts_[index], starts_[index + 1] - starts_[index]);
}

std::string GrammarVocabulary::BytesTo(uint32_t node) const {
  std::string bytes(nodes_[node].depth, '\0');
  for (; node != 0; node = nodes_[node].parent) {
    bytes[nodes_[node].depth - 1] = static_cast<char>(nodes_[node].byte);
  }
  return bytes;
}

}  // namespace quire::text
