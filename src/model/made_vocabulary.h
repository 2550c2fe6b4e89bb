// A made-up vocabulary of any size, as GGUF metadata of the SentencePiece kind: control tokens, the
// 256 bytes, and lower-case words with and without a leading space, so that any text can be
// encoded.
#pragma once

#include "base/ids.h"
#include "model/gguf_writer.h"

namespace quire::model {

inline constexpr TokenId kMadeUnknown = 0;
inline constexpr TokenId kMadeBos = 1;
inline constexpr TokenId kMadeEos = 2;
inline constexpr int kMadeVocabularyMin = 320;  // control tokens, bytes and all letters

void WriteMadeVocabulary(int vocab_size, GgufWriter& writer);

}  // namespace quire::model
