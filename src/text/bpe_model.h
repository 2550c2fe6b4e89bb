// BpeModel: a word to tokens. Three kinds: by the scores of tokens (SentencePiece), by ranked
// merges of characters (the same models as tokenizer.json) and by ranked merges of bytes.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe_merge.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace quire::text {

class BpeModel {
 public:
  virtual ~BpeModel() = default;
  // Appends the tokens of `word`, well-formed UTF-8. Thread-safe; `scratch` is the caller's own.
  virtual void Encode(std::string_view word, BpeScratch& scratch,
                      std::vector<TokenId>& out) const = 0;
};

// `vocabulary` is made of `spec` and outlives the model. `whole_pieces`: user-defined pieces that a
// SentencePiece model takes as a whole wherever they occur.
Result<std::unique_ptr<const BpeModel>> MakeBpeModel(const TokenizerSpec& spec,
                                                     const Vocabulary& vocabulary,
                                                     const std::vector<std::string>& whole_pieces);

}  // namespace quire::text
