// Vocabulary: the tokens of a model by id and by spelling, and the bytes each stands for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

class Vocabulary {
 public:
  // Takes the tokens and types out of `spec`.
  static Result<Vocabulary> Create(TokenizerSpec& spec);

  int size() const { return static_cast<int>(pieces_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }
  // The token as its file spells it, and the bytes of text it stands for.
  std::string_view piece(TokenId id) const { return pieces_[id]; }
  std::string_view bytes(TokenId id) const {
    return std::string_view(bytes_).substr(starts_[id], starts_[id + 1] - starts_[id]);
  }
  TokenType type(TokenId id) const { return types_[id]; }
  // By spelling; the lowest id where two tokens are spelled alike.
  std::optional<TokenId> Find(std::string_view piece) const;
  // The token <0xAB> of a byte.
  std::optional<TokenId> ByteToken(uint8_t byte) const;

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenType> types_;
  std::string bytes_;                                  // of all tokens, one after another
  std::vector<size_t> starts_;                         // [size + 1], where a token's bytes start
  std::unordered_map<std::string_view, TokenId> ids_;  // views of pieces_
};

// The byte that a token spelled <0xAB> stands for.
std::optional<uint8_t> ReadByteToken(std::string_view piece);

}  // namespace quire::text
