// The tokenizer inside a GGUF file: from its metadata to what text/ builds a tokenizer of.
#pragma once

#include "base/result.h"
#include "model/gguf.h"
#include "text/tokenizer.h"
#include "text/tokenizer_spec.h"

namespace quire::engine {

// kNotFound where the file has no tokenizer; kUnsupported where it has one of another kind.
Result<text::TokenizerSpec> TokenizerSpecFromGguf(const model::GgufFile& file);

Result<text::Tokenizer> TokenizerFromGguf(const model::GgufFile& file);

}  // namespace quire::engine
