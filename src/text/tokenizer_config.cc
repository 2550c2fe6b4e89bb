#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "text/json_access.h"
#include "text/tokenizer_json_steps.h"

namespace quire::text {
namespace {

namespace json = boost::json;

constexpr size_t kGapsMax = 65536;

// "<s>", or an object whose "content" it is.
std::optional<std::string> ReadToken(const json::value& config, std::string_view key) {
  const json::value* member = Member(config, key);
  if (member == nullptr) return std::nullopt;
  std::optional<std::string_view> text = AsString(*member);
  if (!text) text = StringMember(*member, "content");
  if (!text || text->empty()) return std::nullopt;
  return std::string(*text);
}

Status ReadAddedTokensDecoder(const json::value& config, TokenizerConfig& out) {
  const json::object* tokens = ObjectMember(config, "added_tokens_decoder");
  if (tokens == nullptr) return Ok{};
  for (const auto& [key, object] : *tokens) {
    AddedToken token = ReadAddedToken(object);
    const char* end = key.data() + key.size();
    const auto [parsed, error] = std::from_chars(key.data(), end, token.id);
    if (error != std::errc() || parsed != end || token.id < 0) {
      return MakeError(ErrorKind::kInvalid, "tokenizer_config.json has an added token with id '{}'",
                       std::string_view(key.data(), key.size()));
    }
    out.added_tokens.push_back(std::move(token));
  }
  return Ok{};
}

void ReadSpecialTokens(const json::value& config, TokenizerConfig& out) {
  const json::array* tokens = ArrayMember(config, "additional_special_tokens");
  if (tokens == nullptr) return;
  for (const json::value& token : *tokens) {
    std::optional<std::string_view> text = AsString(token);
    if (!text) text = StringMember(token, "content");
    if (text) out.special_tokens.emplace_back(*text);
  }
}

// A template, or a list of named ones.
void ReadChatTemplates(const json::value& config, TokenizerConfig& out) {
  if (const auto source = StringMember(config, "chat_template")) {
    out.chat_templates.push_back({"default", std::string(*source)});
  }
  const json::array* list = ArrayMember(config, "chat_template");
  if (list == nullptr) return;
  for (const json::value& item : *list) {
    const std::optional<std::string_view> source = StringMember(item, "template");
    if (!source) continue;
    out.chat_templates.push_back(
        {std::string(StringMember(item, "name").value_or("default")), std::string(*source)});
  }
}

std::optional<TokenId> FindId(const TokenizerSpec& spec, const std::optional<std::string>& token) {
  if (!token) return std::nullopt;
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), *token);
  if (found == spec.tokens.end()) return std::nullopt;
  return static_cast<TokenId>(found - spec.tokens.begin());
}

// The configuration decides alone what stands around a text, where it says anything.
void SetAround(std::optional<bool> wanted, std::optional<TokenId> token,
               std::vector<TokenId>& tokens) {
  if (!wanted) return;
  tokens.clear();
  if (*wanted && token) tokens.push_back(*token);
}

void SetType(const AddedToken& token, TokenizerSpec& spec) {
  TokenType& type = spec.types[token.id];
  if (type == TokenType::kUnknown) return;
  type = token.special ? TokenType::kControl : TokenType::kUserDefined;
}

Status AddToken(const AddedToken& token, size_t entries, TokenizerSpec& spec) {
  const size_t id = static_cast<size_t>(token.id);
  if (id >= entries + kGapsMax) {
    return MakeError(ErrorKind::kInvalid, "the added token '{}' has id {}, far beyond {} tokens",
                     token.content, token.id, entries);
  }
  if (id >= spec.tokens.size()) {
    spec.tokens.resize(id + 1);
    spec.scores.resize(id + 1);
    spec.types.resize(id + 1, TokenType::kUnused);
  }
  spec.tokens[id] = token.content;
  SetType(token, spec);
  std::erase_if(spec.added_tokens, [&](const AddedToken& old) { return old.id == token.id; });
  spec.added_tokens.push_back(token);
  return Ok{};
}

}  // namespace

Result<TokenizerConfig> ParseTokenizerConfig(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const json::value root, ParseJson(text, "the tokenizer's configuration"));
  TokenizerConfig config;
  config.bos_token = ReadToken(root, "bos_token");
  config.eos_token = ReadToken(root, "eos_token");
  config.unk_token = ReadToken(root, "unk_token");
  config.pad_token = ReadToken(root, "pad_token");
  config.add_bos_token = BoolMember(root, "add_bos_token");
  config.add_eos_token = BoolMember(root, "add_eos_token");
  config.add_prefix_space = BoolMember(root, "add_prefix_space");
  config.legacy = BoolMember(root, "legacy");
  QUIRE_RETURN_IF_ERROR(ReadAddedTokensDecoder(root, config));
  ReadSpecialTokens(root, config);
  ReadChatTemplates(root, config);
  return config;
}

Result<std::vector<AddedToken>> ParseAddedTokens(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const json::value root, ParseJson(text, "added_tokens.json"));
  const json::object* members = root.if_object();
  std::vector<AddedToken> tokens;
  if (members == nullptr) {
    return MakeError(ErrorKind::kInvalid, "added_tokens.json is no object of texts and ids");
  }
  for (const auto& [content, value] : *members) {
    const std::optional<int64_t> id = AsInt(value);
    if (!id || *id < 0 || *id > INT32_MAX) {
      return MakeError(ErrorKind::kInvalid, "added_tokens.json gives '{}' no valid id",
                       std::string_view(content.data(), content.size()));
    }
    tokens.push_back(
        {.id = static_cast<TokenId>(*id), .content = std::string(content.data(), content.size())});
  }
  return tokens;
}

void ApplySpecialTokens(const TokenizerConfig& config, TokenizerSpec& spec) {
  if (const auto id = FindId(spec, config.bos_token)) spec.bos = id;
  if (const auto id = FindId(spec, config.eos_token)) spec.eos = id;
  if (const auto id = FindId(spec, config.unk_token)) spec.unk = id;
  if (const auto id = FindId(spec, config.pad_token)) spec.pad = id;
  SetAround(config.add_bos_token, spec.bos, spec.prefix_tokens);
  SetAround(config.add_eos_token, spec.eos, spec.suffix_tokens);
}

Status ApplyToSentencePiece(const TokenizerConfig& config, TokenizerSpec& spec) {
  const size_t entries = spec.tokens.size() + config.added_tokens.size();
  for (const AddedToken& token : config.added_tokens) {
    QUIRE_RETURN_IF_ERROR(AddToken(token, entries, spec));
  }
  for (NormalizerStep& step : spec.normalizer) {
    SentencePieceStep* sentence_piece = std::get_if<SentencePieceStep>(&step);
    if (sentence_piece == nullptr) continue;
    if (config.add_prefix_space == false) {
      sentence_piece->dummy_prefix = PrependScheme::kNever;
      spec.strip_leading_space = sentence_piece->remove_extra_whitespaces;
    } else if (config.legacy == false && sentence_piece->dummy_prefix == PrependScheme::kAlways) {
      sentence_piece->dummy_prefix = PrependScheme::kFirst;
    }
  }
  return Ok{};
}

}  // namespace quire::text
