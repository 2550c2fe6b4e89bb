// tokenizer.model: a SentencePiece model of type BPE, read from its protocol buffer.
//
// Message ModelProto: pieces (1: text 1, score 2, type 3), trainer_spec (2: model_type 3,
// treat_whitespace_as_suffix 24, byte_fallback 35, special pieces 45 to 48), normalizer_spec (3:
// precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4, escape_whitespaces 5).
// Normalization rules are applied as compiled into the file, whatever their name (nmt_nfkc, ...).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

// kUnsupported for unigram, word and character models.
Result<TokenizerSpec> ParseSentencePieceModel(std::string_view bytes);

Result<TokenizerSpec> LoadSentencePieceModel(const std::string& path);

}  // namespace quire::text
