// Tokenizer: text to token ids and back.
//
// Owns the vocabulary and everything compiled from a TokenizerSpec. All uses are const and
// thread-safe; there is no global state. A text need not be well-formed UTF-8: each maximal
// ill-formed part (utf8.h) counts as U+FFFD. Encoding takes time linear in the text, times the
// logarithm of its longest word.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

struct EncodeOptions {
  bool add_special = false;    // put the model's bos (and what else its file asks for) around it
  bool parse_special = false;  // control tokens spelled in the text become those tokens
};

// What stands before the tokens that are decoded.
enum class TextStart {
  kBeginning,     // nothing: a SentencePiece model's dummy prefix is dropped
  kContinuation,  // other text: a leading space is a space
};

struct DecodeOptions {
  bool skip_special = false;  // control and unknown tokens give no text
  TextStart start = TextStart::kBeginning;
  std::vector<TokenId> shown_special = {};  // of those skipped otherwise
};

class Tokenizer {
 public:
  static Result<Tokenizer> Create(TokenizerSpec spec);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `text` has less than 2 GiB.
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Well-formed UTF-8: exactly what a StreamDecoder gives for the same ids. Ids outside the
  // vocabulary give no text.
  std::string Decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  // How to decode what a model says after `prompt`: text goes on, a new turn begins.
  TextStart StartAfter(std::span<const TokenId> prompt) const;

  int vocab_size() const;
  bool Contains(TokenId id) const { return id >= 0 && id < vocab_size(); }
  // The bytes of text a token stands for, perhaps a part of a character; the token as its file
  // spells it. Both empty for ids outside the vocabulary, and valid as long as the tokenizer.
  std::string_view TokenBytes(TokenId id) const;
  std::string_view TokenPiece(TokenId id) const;
  TokenType Type(TokenId id) const;
  bool IsControl(TokenId id) const { return Contains(id) && Type(id) == TokenType::kControl; }
  // The token that is spelled so in the model's file.
  std::optional<TokenId> FindToken(std::string_view piece) const;

  TokenizerKind kind() const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  // Tokens that end what a model says: eos, those its file names so, and the end-of-turn tokens of
  // well-known chat formats where the vocabulary has them as control tokens. In order of ids.
  const std::vector<TokenId>& end_tokens() const;
  bool adds_bos() const;             // add_special puts bos before a text
  bool drops_leading_space() const;  // TextStart::kBeginning matters

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace quire::text
