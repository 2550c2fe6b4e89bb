// StreamDecoder: tokens to text, one by one as a model produces them.
//
// What it gives, put together, is exactly Tokenizer::Decode of the same tokens. It holds back the
// first bytes of a character (3 at most) until the character is complete or certainly none; then
// U+FFFD stands for them (utf8.h). A copy is a snapshot: continuing from it repeats what followed.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace quire::text {

class StreamDecoder {
 public:
  // `tokenizer` outlives the decoder and its copies.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer),
        skip_special_(options.skip_special),
        shown_special_(options.shown_special),
        drop_space_(options.start == TextStart::kBeginning && tokenizer.drops_leading_space()) {}

  // Appends to `text` what `id` makes certain; perhaps nothing. Ids outside the vocabulary give
  // nothing.
  void Append(TokenId id, std::string& text);
  std::string Append(TokenId id) {
    std::string text;
    Append(id, text);
    return text;
  }

  // No token follows: an incomplete character becomes U+FFFD.
  void Finish(std::string& text) { utf8_.Finish(text); }
  std::string Finish() {
    std::string text;
    Finish(text);
    return text;
  }

  // Some bytes of a character wait for the next token.
  bool HoldsBack() const { return utf8_.HoldsBack(); }

 private:
  bool Skips(TokenId id) const;

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::vector<TokenId> shown_special_;
  bool drop_space_;  // no text yet: a leading space is the dummy prefix
  Utf8Stream utf8_;
};

}  // namespace quire::text
