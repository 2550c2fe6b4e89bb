// Normalizer: the steps of TokenizerSpec::normalizer, applied to the text between added tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

class Normalizer {
 public:
  // `protected_pieces`: user-defined pieces, which SentencePiece does not normalize.
  static Result<Normalizer> Create(const std::vector<NormalizerStep>& steps,
                                   const std::vector<std::string>& protected_pieces);

  // `text` is well-formed UTF-8, and so is the result.
  std::string Apply(std::string text, SectionPlace place) const;
  bool IsIdentity() const { return steps_.empty(); }

  class Step;  // one step, ready to run

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace quire::text
