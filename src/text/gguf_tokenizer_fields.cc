#include "text/gguf_tokenizer_fields.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace quire::text {
namespace {

Status SetTypes(const GgufTokenizerFields& fields, TokenizerSpec& spec) {
  const size_t count = fields.tokens.size();
  if (!fields.token_types.empty() && fields.token_types.size() != count) {
    return MakeError(ErrorKind::kInvalid, "the file has {} tokens but {} token types", count,
                     fields.token_types.size());
  }
  spec.types.resize(count, TokenType::kNormal);
  for (size_t id = 0; id < count; ++id) {
    if (fields.token_types.empty()) {
      if (spec.kind == TokenizerKind::kSentencePieceBpe && ReadByteToken(fields.tokens[id])) {
        spec.types[id] = TokenType::kByte;
      }
      continue;
    }
    const int32_t type = fields.token_types[id];
    if (type >= 1 && type <= 6) spec.types[id] = static_cast<TokenType>(type);
    // Converters fill a vocabulary up to the embedding's size with [PAD<id>]: no such text exists.
    if (spec.types[id] == TokenType::kUserDefined &&
        fields.tokens[id] == fmt::format("[PAD{}]", id)) {
      spec.types[id] = TokenType::kUnused;
    }
  }
  return Ok{};
}

std::optional<TokenId> IdWithin(std::optional<int64_t> id, size_t count) {
  if (!id || *id < 0 || static_cast<uint64_t>(*id) >= count) return std::nullopt;
  return static_cast<TokenId>(*id);
}

// Phi-3's tokens but the first three swallow the white space that follows them.
bool TakesSpaceToTheRight(const GgufTokenizerFields& fields, std::string_view token) {
  std::string name = fields.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_phi3 = fields.model == "llama" &&
                       (fields.architecture == "phi3" || name.find("phi-3") != std::string::npos ||
                        name.find("phi3") != std::string::npos);
  return is_phi3 && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

void SetAddedTokens(const GgufTokenizerFields& fields, TokenizerSpec& spec) {
  for (size_t id = 0; id < fields.tokens.size(); ++id) {
    const TokenType type = spec.types[id];
    if (type != TokenType::kControl && type != TokenType::kUserDefined &&
        type != TokenType::kUnknown) {
      continue;
    }
    spec.added_tokens.push_back({.id = static_cast<TokenId>(id),
                                 .content = fields.tokens[id],
                                 .special = type != TokenType::kUserDefined,
                                 .rstrip = TakesSpaceToTheRight(fields, fields.tokens[id])});
  }
}

Status SetMerges(std::vector<std::string>& merges, TokenizerSpec& spec) {
  spec.merges.reserve(merges.size());
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);  // a side is not empty, and may start with a space
    if (space == std::string::npos) {
      return MakeError(ErrorKind::kInvalid, "the merge '{}' is not two tokens", merge);
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  merges.clear();
  return Ok{};
}

void SetSentencePiece(GgufTokenizerFields& fields, TokenizerSpec& spec) {
  const bool adds_prefix = fields.add_space_prefix.value_or(true);
  spec.normalizer.emplace_back(SentencePieceStep{
      .dummy_prefix = adds_prefix ? PrependScheme::kAlways : PrependScheme::kNever,
      .remove_extra_whitespaces = fields.remove_extra_whitespaces.value_or(false)});
  spec.strip_leading_space = adds_prefix;
  spec.byte_fallback =
      std::find(spec.types.begin(), spec.types.end(), TokenType::kByte) != spec.types.end();
  spec.scores = std::move(fields.scores);
}

}  // namespace

Result<TokenizerSpec> SpecFromGgufFields(GgufTokenizerFields fields) {
  TokenizerSpec spec;
  bool add_bos = true;
  const size_t count = fields.tokens.size();
  if (fields.model == "llama") {
    spec.kind = TokenizerKind::kSentencePieceBpe;
    spec.bos = IdWithin(fields.bos_token_id.value_or(1), count);
    spec.eos = IdWithin(fields.eos_token_id.value_or(2), count);
    spec.unk = IdWithin(fields.unknown_token_id.value_or(0), count);
  } else if (fields.model == "gpt2") {
    spec.kind = TokenizerKind::kByteLevelBpe;
    QUIRE_ASSIGN_OR_RETURN(NamedPretokenizer named, FindPretokenizer(fields.pre));
    if (fields.add_space_prefix.value_or(false)) {
      spec.pretokenizer.emplace_back(PrefixSpaceStep{});
    }
    spec.pretokenizer.insert(spec.pretokenizer.end(), named.steps.begin(), named.steps.end());
    spec.ignore_merges = named.ignore_merges;
    add_bos = named.add_bos;
    spec.bos = IdWithin(fields.bos_token_id, count);
    spec.eos = IdWithin(fields.eos_token_id, count);
    spec.unk = IdWithin(fields.unknown_token_id, count);
  } else {
    return MakeError(ErrorKind::kUnsupported,
                     "the tokenizer model '{}' is not supported; supported are llama "
                     "(SentencePiece BPE) and gpt2 (byte-level BPE)",
                     fields.model);
  }
  spec.pad = IdWithin(fields.padding_token_id, count);
  for (const auto id : {fields.eot_token_id, fields.eom_token_id}) {
    if (const auto end = IdWithin(id, count)) spec.end_tokens.push_back(*end);
  }
  QUIRE_RETURN_IF_ERROR(SetTypes(fields, spec));
  SetAddedTokens(fields, spec);
  if (spec.kind == TokenizerKind::kSentencePieceBpe) {
    SetSentencePiece(fields, spec);
  } else {
    QUIRE_RETURN_IF_ERROR(SetMerges(fields.merges, spec));
  }
  if (fields.add_bos_token.value_or(add_bos) && spec.bos) spec.prefix_tokens = {*spec.bos};
  if (fields.add_eos_token.value_or(false) && spec.eos) spec.suffix_tokens = {*spec.eos};
  spec.tokens = std::move(fields.tokens);
  return spec;
}

}  // namespace quire::text
