// tokenizer.json: Hugging Face's file of a tokenizer, of model type BPE, byte-level or in
// SentencePiece's manner.
//
// Normalizers: Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Strip. Pre-tokenizers: Sequence,
// Split, Digits, Punctuation, Whitespace, WhitespaceSplit, ByteLevel, Metaspace. Post-processors:
// TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence. Anything else is
// refused by name rather than tokenized differently from how the model was trained.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

Result<TokenizerSpec> ParseTokenizerJson(std::string_view json);

Result<TokenizerSpec> LoadTokenizerJson(const std::string& path);

}  // namespace quire::text
