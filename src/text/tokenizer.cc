#include "text/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/stream_decoder.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace quire::text {

struct Tokenizer::State {
  TokenizerKind kind = TokenizerKind::kSentencePieceBpe;
  Vocabulary vocabulary;
  std::unique_ptr<const BpeModel> model;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  AddedTokens before_normalization{{}};
  AddedTokens after_normalization{{}};
  std::optional<TokenId> bos, eos, unk, pad;
  std::vector<TokenId> prefix, suffix;
  std::vector<TokenId> end_tokens;
  bool splits_words = false;
  bool strips_leading_space = false;
};

namespace {

constexpr size_t kTextBytesMax = INT32_MAX;  // what ICU counts in

Status CheckIds(const TokenizerSpec& spec, int vocab_size) {
  const auto check = [&](TokenId id, std::string_view what) -> Status {
    if (id >= 0 && id < vocab_size) return Ok{};
    return MakeError(ErrorKind::kInvalid, "the {} token has id {}, outside the vocabulary of {}",
                     what, id, vocab_size);
  };
  if (spec.bos) QUIRE_RETURN_IF_ERROR(check(*spec.bos, "bos"));
  if (spec.eos) QUIRE_RETURN_IF_ERROR(check(*spec.eos, "eos"));
  if (spec.unk) QUIRE_RETURN_IF_ERROR(check(*spec.unk, "unknown"));
  for (const TokenId id : spec.end_tokens) QUIRE_RETURN_IF_ERROR(check(id, "end"));
  if (spec.pad) QUIRE_RETURN_IF_ERROR(check(*spec.pad, "padding"));
  for (const TokenId id : spec.prefix_tokens) QUIRE_RETURN_IF_ERROR(check(id, "leading"));
  for (const TokenId id : spec.suffix_tokens) QUIRE_RETURN_IF_ERROR(check(id, "trailing"));
  for (const AddedToken& token : spec.added_tokens) {
    QUIRE_RETURN_IF_ERROR(check(token.id, "added"));
  }
  return Ok{};
}

// User-defined tokens that are no added tokens: the SentencePiece model itself keeps them whole.
std::vector<std::string> WholePieces(const TokenizerSpec& spec) {
  std::vector<TokenId> added;
  for (const AddedToken& token : spec.added_tokens) added.push_back(token.id);
  std::sort(added.begin(), added.end());
  std::vector<std::string> pieces;
  for (size_t id = 0; id < spec.types.size() && id < spec.tokens.size(); ++id) {
    if (spec.types[id] == TokenType::kUserDefined &&
        !std::binary_search(added.begin(), added.end(), static_cast<TokenId>(id))) {
      pieces.push_back(spec.tokens[id]);
    }
  }
  return pieces;
}

// The added tokens of one phase. Those found in normalized text are normalized themselves.
AddedTokens SelectAdded(const TokenizerSpec& spec, const Normalizer& normalizer, bool normalized) {
  std::vector<AddedToken> selected;
  for (AddedToken token : spec.added_tokens) {
    const bool is_normalized = token.normalized && !normalizer.IsIdentity();
    if (is_normalized != normalized) continue;
    if (is_normalized)
      token.content = normalizer.Apply(ToValidUtf8(token.content), SectionPlace::kLater);
    selected.push_back(std::move(token));
  }
  return AddedTokens(std::move(selected));
}

std::vector<TokenId> FindEndTokens(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  std::vector<TokenId> ids = spec.end_tokens;
  if (spec.eos) ids.push_back(*spec.eos);
  for (const std::string_view name : {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
                                      "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>"}) {
    const std::optional<TokenId> id = vocabulary.Find(name);
    if (id && vocabulary.type(*id) == TokenType::kControl) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Tries of these take about a hundred times their length.
Status CheckWholeTokens(const TokenizerSpec& spec, const std::vector<std::string>& whole_pieces) {
  constexpr size_t kBytesMax = size_t{1} << 22;
  size_t bytes = 0;
  for (const AddedToken& token : spec.added_tokens) bytes += token.content.size();
  for (const std::string& piece : whole_pieces) bytes += piece.size();
  if (bytes <= kBytesMax) return Ok{};
  return MakeError(ErrorKind::kUnsupported,
                   "the added tokens have {} bytes together, more than the {} allowed", bytes,
                   kBytesMax);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Create(TokenizerSpec spec) {
  auto state = std::make_unique<State>();
  state->kind = spec.kind;
  const std::vector<std::string> whole_pieces = spec.kind == TokenizerKind::kSentencePieceBpe
                                                    ? WholePieces(spec)
                                                    : std::vector<std::string>();
  QUIRE_ASSIGN_OR_RETURN(state->vocabulary, Vocabulary::Create(spec));
  QUIRE_RETURN_IF_ERROR(CheckIds(spec, state->vocabulary.size()));
  QUIRE_RETURN_IF_ERROR(CheckWholeTokens(spec, whole_pieces));
  QUIRE_ASSIGN_OR_RETURN(state->normalizer, Normalizer::Create(spec.normalizer, whole_pieces));
  QUIRE_ASSIGN_OR_RETURN(state->pretokenizer, Pretokenizer::Create(spec.pretokenizer));
  QUIRE_ASSIGN_OR_RETURN(state->model, MakeBpeModel(spec, state->vocabulary, whole_pieces));
  state->before_normalization = SelectAdded(spec, state->normalizer, false);
  state->after_normalization = SelectAdded(spec, state->normalizer, true);
  state->end_tokens = FindEndTokens(spec, state->vocabulary);
  state->bos = spec.bos;
  state->eos = spec.eos;
  state->unk = spec.unk;
  state->pad = spec.pad;
  state->prefix = std::move(spec.prefix_tokens);
  state->suffix = std::move(spec.suffix_tokens);
  state->splits_words = !spec.pretokenizer.empty();
  state->strips_leading_space = spec.strip_leading_space;
  return Tokenizer(std::move(state));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view raw_text,
                                       const EncodeOptions& options) const {
  QUIRE_CHECK_LE(raw_text.size(), kTextBytesMax);
  const State& state = *state_;
  std::vector<TokenId> ids;
  ids.reserve(raw_text.size() / 3 + 4);
  if (options.add_special) ids = state.prefix;
  const AddedTokens::Find find =
      options.parse_special ? AddedTokens::Find::kAll : AddedTokens::Find::kNotSpecial;
  BpeScratch scratch;
  const auto encode_words = [&](std::string section, SectionPlace place) {
    if (!state.splits_words) {
      state.model->Encode(section, scratch, ids);
      return;
    }
    const Words words = state.pretokenizer.Split(std::move(section), place);
    for (size_t i = 0; i < words.ranges.size(); ++i) {
      state.model->Encode(words.word(i), scratch, ids);
    }
  };
  const std::string text = ToValidUtf8(raw_text);
  state.before_normalization.ForEachSection(text, find, [&](const AddedTokens::Section& outer) {
    if (outer.token) {
      ids.push_back(*outer.token);
      return;
    }
    const SectionPlace outer_place = outer.begin == 0 ? SectionPlace::kFirst : SectionPlace::kLater;
    const std::string normalized =
        state.normalizer.Apply(text.substr(outer.begin, outer.end - outer.begin), outer_place);
    state.after_normalization.ForEachSection(
        normalized, find, [&](const AddedTokens::Section& inner) {
          if (inner.token) {
            ids.push_back(*inner.token);
            return;
          }
          encode_words(normalized.substr(inner.begin, inner.end - inner.begin),
                       inner.begin == 0 ? outer_place : SectionPlace::kLater);
        });
  });
  if (options.add_special) {
    ids.insert(ids.end(), state.suffix.begin(), state.suffix.end());
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (const TokenId id : ids) decoder.Append(id, text);
  decoder.Finish(text);
  return text;
}

TextStart Tokenizer::StartAfter(std::span<const TokenId> prompt) const {
  return prompt.empty() || IsControl(prompt.back()) ? TextStart::kBeginning
                                                    : TextStart::kContinuation;
}

int Tokenizer::vocab_size() const {
  return state_->vocabulary.size();
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  return Contains(id) ? state_->vocabulary.bytes(id) : std::string_view();
}

std::string_view Tokenizer::TokenPiece(TokenId id) const {
  return Contains(id) ? state_->vocabulary.piece(id) : std::string_view();
}

TokenType Tokenizer::Type(TokenId id) const {
  QUIRE_CHECK(Contains(id));
  return state_->vocabulary.type(id);
}

std::optional<TokenId> Tokenizer::FindToken(std::string_view piece) const {
  return state_->vocabulary.Find(piece);
}

TokenizerKind Tokenizer::kind() const {
  return state_->kind;
}
std::optional<TokenId> Tokenizer::bos() const {
  return state_->bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return state_->eos;
}
std::optional<TokenId> Tokenizer::unk() const {
  return state_->unk;
}
std::optional<TokenId> Tokenizer::pad() const {
  return state_->pad;
}

const std::vector<TokenId>& Tokenizer::end_tokens() const {
  return state_->end_tokens;
}

bool Tokenizer::adds_bos() const {
  return state_->bos && std::find(state_->prefix.begin(), state_->prefix.end(), *state_->bos) !=
                            state_->prefix.end();
}

bool Tokenizer::drops_leading_space() const {
  return state_->strips_leading_space;
}

}  // namespace quire::text
