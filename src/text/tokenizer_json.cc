#include "text/tokenizer_json.h"

#include <algorithm>

#include "text/read_file.h"
#include "text/tokenizer_json_steps.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace quire::text {
namespace {

namespace json = boost::json;

// Ids may have gaps, but a file of a few entries cannot ask for a vocabulary of billions.
constexpr size_t kGapsMax = 65536;

// Puts `piece` at `id`, growing the vocabulary as far as `entries` warrant.
Status SetToken(std::string_view piece, std::optional<int64_t> id, size_t entries,
                TokenizerSpec& spec) {
  if (!id || *id < 0 || static_cast<uint64_t>(*id) >= entries + kGapsMax) {
    return MakeError(ErrorKind::kInvalid,
                     "tokenizer.json gives the token '{}' no id, or one far beyond its {} entries",
                     piece, entries);
  }
  const size_t index = static_cast<size_t>(*id);
  if (index >= spec.tokens.size()) {
    spec.tokens.resize(index + 1);
    spec.types.resize(index + 1, TokenType::kUnused);
  }
  spec.tokens[index] = piece;
  spec.types[index] = TokenType::kNormal;
  return Ok{};
}

Status ReadVocabulary(const json::value& model, size_t added_count, TokenizerSpec& spec) {
  const json::object* vocabulary = ObjectMember(model, "vocab");
  if (vocabulary == nullptr) {
    return MakeError(ErrorKind::kInvalid, "tokenizer.json has no model.vocab of names and ids");
  }
  const size_t entries = vocabulary->size() + added_count;
  spec.tokens.reserve(entries);
  for (const auto& [piece, id] : *vocabulary) {
    QUIRE_RETURN_IF_ERROR(
        SetToken(std::string_view(piece.data(), piece.size()), AsInt(id), entries, spec));
  }
  if (!spec.byte_fallback) return Ok{};
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (ReadByteToken(spec.tokens[id])) spec.types[id] = TokenType::kByte;
  }
  return Ok{};
}

// "left right", or ["left", "right"].
Status ReadMerges(const json::value& model, TokenizerSpec& spec) {
  const json::array* merges = ArrayMember(model, "merges");
  if (merges == nullptr) {
    return MakeError(ErrorKind::kInvalid, "tokenizer.json has no model.merges");
  }
  spec.merges.reserve(merges->size());
  for (const json::value& merge : *merges) {
    const json::array* pair = merge.if_array();
    if (pair != nullptr && pair->size() == 2 && AsString((*pair)[0]) && AsString((*pair)[1])) {
      spec.merges.emplace_back(*AsString((*pair)[0]), *AsString((*pair)[1]));
      continue;
    }
    const std::string_view text = AsString(merge).value_or("");
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) {
      return MakeError(ErrorKind::kInvalid, "tokenizer.json's merge {} is not two tokens",
                       spec.merges.size());
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return Ok{};
}

Status ReadAddedTokens(const json::value& root, size_t entries, TokenizerSpec& spec) {
  const json::array* tokens = ArrayMember(root, "added_tokens");
  if (tokens == nullptr) return Ok{};
  for (const json::value& object : *tokens) {
    AddedToken token = ReadAddedToken(object);
    const json::value* id = Member(object, "id");
    QUIRE_RETURN_IF_ERROR(
        SetToken(token.content, id == nullptr ? std::nullopt : AsInt(*id), entries, spec));
    token.id = static_cast<TokenId>(*AsInt(*id));
    spec.types[token.id] = token.special ? TokenType::kControl : TokenType::kUserDefined;
    spec.added_tokens.push_back(std::move(token));
  }
  return Ok{};
}

// Whether decoding drops a space at the start: a Strip of it, or Metaspace's own rule.
bool StripsLeadingSpace(const json::value& decoder) {
  const std::string_view type = TypeOf(decoder);
  if (type == "Strip") {
    const json::value* start = Member(decoder, "start");
    return StringMember(decoder, "content") == " " && start != nullptr &&
           AsInt(*start).value_or(0) > 0;
  }
  if (type == "Metaspace") {
    const std::optional<std::string_view> scheme = StringMember(decoder, "prepend_scheme");
    return scheme ? *scheme != "never" : BoolMember(decoder, "add_prefix_space").value_or(true);
  }
  const json::array* parts = ArrayMember(decoder, "decoders");
  return type == "Sequence" && parts != nullptr &&
         std::any_of(parts->begin(), parts->end(), StripsLeadingSpace);
}

Status CheckModel(const json::value& model) {
  const std::string_view type = StringMember(model, "type").value_or("BPE");  // old files omit it
  if (type != "BPE") {
    return MakeError(ErrorKind::kUnsupported,
                     "tokenizer.json has a model of type '{}'; only BPE is supported", type);
  }
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!StringMember(model, affix).value_or("").empty()) {
      return MakeError(ErrorKind::kUnsupported,
                       "tokenizer.json's model has a {}, which is not supported", affix);
    }
  }
  return Ok{};
}

Status ReadModel(const json::value& model, size_t added_count, TokenizerSpec& spec) {
  QUIRE_RETURN_IF_ERROR(CheckModel(model));
  spec.byte_fallback = BoolMember(model, "byte_fallback").value_or(false);
  spec.fuse_unknown = BoolMember(model, "fuse_unk").value_or(false);
  spec.ignore_merges = BoolMember(model, "ignore_merges").value_or(false);
  QUIRE_RETURN_IF_ERROR(ReadVocabulary(model, added_count, spec));
  return ReadMerges(model, spec);
}

const json::value& MemberOrNull(const json::value& object, std::string_view key) {
  static const json::value null;
  const json::value* member = Member(object, key);
  return member == nullptr ? null : *member;
}

void SetUnknown(std::string_view piece, TokenizerSpec& spec) {
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), piece);
  if (found == spec.tokens.end()) return;
  const size_t id = static_cast<size_t>(found - spec.tokens.begin());
  spec.unk = static_cast<TokenId>(id);
  spec.types[id] = TokenType::kUnknown;
}

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const json::value root, ParseJson(text, "tokenizer.json"));
  const json::value* model = Member(root, "model");
  if (model == nullptr) {
    return MakeError(ErrorKind::kInvalid, "tokenizer.json has no model");
  }
  TokenizerSpec spec;
  const json::array* added = ArrayMember(root, "added_tokens");
  const size_t added_count = added == nullptr ? 0 : added->size();
  QUIRE_RETURN_IF_ERROR(ReadModel(*model, added_count, spec));
  QUIRE_RETURN_IF_ERROR(ReadAddedTokens(root, spec.tokens.size() + added_count, spec));
  QUIRE_RETURN_IF_ERROR(AddNormalizer(MemberOrNull(root, "normalizer"), spec));
  QUIRE_RETURN_IF_ERROR(AddPretokenizer(MemberOrNull(root, "pre_tokenizer"), spec));
  QUIRE_RETURN_IF_ERROR(AddPostProcessor(MemberOrNull(root, "post_processor"), spec));
  if (const auto unknown = StringMember(*model, "unk_token")) SetUnknown(*unknown, spec);
  spec.strip_leading_space = StripsLeadingSpace(MemberOrNull(root, "decoder"));
  if (!spec.prefix_tokens.empty()) spec.bos = spec.prefix_tokens.front();
  if (!spec.suffix_tokens.empty()) spec.eos = spec.suffix_tokens.back();
  return spec;
}

Result<TokenizerSpec> LoadTokenizerJson(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseTokenizerJson(text);
}

}  // namespace quire::text
