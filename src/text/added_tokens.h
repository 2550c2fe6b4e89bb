// AddedTokens: finds the tokens that are taken from a text as a whole, before it is split.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/byte_trie.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

class AddedTokens {
 public:
  // Tokens whose text is empty or not well-formed UTF-8 are never found.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // A stretch of text between added tokens, or (token set) one of them.
  struct Section {
    size_t begin = 0;
    size_t end = 0;
    std::optional<TokenId> token;
  };
  enum class Find { kAll, kNotSpecial };

  // Calls `visit` for the sections of `text` in order; stretches without text are left out. At each
  // place the longest token wins.
  void ForEachSection(std::string_view text, Find find,
                      base::FunctionRef<void(const Section&)> visit) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie all_;          // value: index into tokens_
  ByteTrie not_special_;  // the same without special tokens
};

}  // namespace quire::text
