// GrammarVocabulary: the tokens of a model as a trie over their bytes, in the form in which a mask
// is computed. Built once per tokenizer; immutable; any thread.
//
// Only tokens that stand for text are in it: no control, unknown or unused tokens, none without
// bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quire::text {

// Bit t % 32 of word t / 32: token t may come.
struct TokenMask {
  std::vector<uint32_t> words;

  bool Test(TokenId token) const { return ((words[Word(token)] >> (token % 32)) & 1u) != 0; }
  void Set(TokenId token) { words[Word(token)] |= 1u << (token % 32); }
  void Clear(TokenId token) { words[Word(token)] &= ~(1u << (token % 32)); }

 private:
  static size_t Word(TokenId token) { return static_cast<size_t>(token) / 32; }
};

class GrammarVocabulary {
 public:
  // Nodes in depth-first order, so that the nodes below one follow it up to `end`.
  struct Node {
    uint32_t parent = 0;
    uint32_t end = 0;
    uint32_t tokens_begin = 0;  // the tokens spelled by the way to this node; they end where the
                                // next node's begin
    uint32_t depth = 0;         // bytes up to and including this node's
    uint8_t byte = 0;
  };

  // `mask_bits`: tokens a mask has a bit for; at least the vocabulary's size (a model's logits may
  // have more rows than its tokenizer has tokens).
  static std::shared_ptr<const GrammarVocabulary> Create(const Tokenizer& tokenizer, int mask_bits);

  // Node 0 is the root. One more node than there are, so that every node has a next one.
  const std::vector<Node>& nodes() const { return nodes_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()) - 1; }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // in the order of their nodes
  // The bytes of a token that may occur in text, else nothing.
  std::string_view bytes(TokenId token) const;
  std::string BytesTo(uint32_t node) const;  // on the way from the root
  uint32_t longest_token() const { return longest_token_; }
  // Masks have a bit for it.
  bool Contains(TokenId token) const {
    return token >= 0 && static_cast<uint32_t>(token) < mask_bits_;
  }
  TokenMask EmptyMask() const { return {std::vector<uint32_t>((mask_bits_ + 31u) / 32u)}; }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::string bytes_;           // of all tokens by id
  std::vector<size_t> starts_;  // [vocabulary + 1]
  uint32_t mask_bits_ = 0;
  uint32_t longest_token_ = 0;
};

}  // namespace quire::text
