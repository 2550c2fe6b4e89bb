#include "text/sentencepiece_bpe.h"

#include <cmath>

#include "text/utf8.h"

namespace quire::text {
namespace {

bool IsMergeable(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUnused ||
         type == TokenType::kUserDefined;
}

// A U+2581 that follows anything but another one.
bool HasInnerSpace(std::string_view piece) {
  for (size_t at = piece.find(kMetaspace, 1); at != std::string_view::npos;
       at = piece.find(kMetaspace, at + 1)) {
    if (!piece.substr(0, at).ends_with(kMetaspace)) return true;
  }
  return false;
}

// ranks[id]: 0 for the highest score; equal scores, equal ranks.
std::vector<int32_t> RanksOfScores(const std::vector<float>& scores) {
  std::vector<float> distinct = scores;
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<int32_t> ranks;
  ranks.reserve(scores.size());
  for (const float score : scores) {
    const auto at = std::lower_bound(distinct.begin(), distinct.end(), score, std::greater<>());
    ranks.push_back(static_cast<int32_t>(at - distinct.begin()));
  }
  return ranks;
}

}  // namespace

CharacterBpe::CharacterBpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary),
      byte_fallback_(spec.byte_fallback),
      fuse_unknown_(spec.fuse_unknown),
      unknown_(spec.unk) {
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary.ByteToken(static_cast<uint8_t>(byte));
  }
  for (TokenId id = 0; id < vocabulary.size() && spaces_start_pieces_; ++id) {
    if (IsMergeable(vocabulary.type(id)) && HasInnerSpace(vocabulary.piece(id))) {
      spaces_start_pieces_ = false;
    }
  }
}

bool CharacterBpe::MayCutBefore(std::string_view word, size_t position) const {
  return spaces_start_pieces_ && word.substr(position).starts_with(kMetaspace) &&
         !word.substr(0, position).ends_with(kMetaspace);
}

void CharacterBpe::AppendUnknown(std::string_view characters, std::vector<TokenId>& out) const {
  const auto token = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
  if (byte_fallback_ && std::all_of(characters.begin(), characters.end(),
                                    [&](char c) { return token(c).has_value(); })) {
    for (const char c : characters) out.push_back(*token(c));
  } else if (unknown_ && !(fuse_unknown_ && !out.empty() && out.back() == *unknown_)) {
    out.push_back(*unknown_);
  }
}

Result<std::unique_ptr<const BpeModel>> ScoredBpe::Create(
    const TokenizerSpec& spec, const Vocabulary& vocabulary,
    const std::vector<std::string>& whole_pieces) {
  if (spec.scores.size() != static_cast<size_t>(vocabulary.size())) {
    return MakeError(ErrorKind::kInvalid, "the vocabulary has {} tokens but {} scores",
                     vocabulary.size(), spec.scores.size());
  }
  if (std::any_of(spec.scores.begin(), spec.scores.end(), [](float s) { return std::isnan(s); })) {
    return MakeError(ErrorKind::kInvalid, "a token's score is not a number");
  }
  auto model = std::make_unique<ScoredBpe>(spec, vocabulary);
  model->ranks_ = RanksOfScores(spec.scores);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    if (!IsMergeable(type)) {
      model->ranks_[id] = -1;
      continue;
    }
    model->has_unused_ |= type == TokenType::kUnused;
    model->piece_bytes_max_ = std::max(model->piece_bytes_max_, vocabulary.piece(id).size());
  }
  for (const std::string& piece : whole_pieces) {
    if (piece.empty()) continue;
    const std::optional<TokenId> id = vocabulary.Find(piece);
    if (id) model->whole_pieces_.Insert(piece, *id);
  }
  return std::unique_ptr<const BpeModel>(std::move(model));
}

size_t ScoredBpe::AddSymbols(std::string_view word, size_t begin,
                             std::vector<BpeSymbol>& symbols) const {
  symbols.clear();
  size_t position = begin;
  while (position < word.size() && (position == begin || !MayCutBefore(word, position))) {
    const std::optional<ByteTrie::Match> whole = whole_pieces_.LongestMatch(word, position);
    const size_t length = whole ? whole->length : CharacterLength(word[position]);
    // The id says only that a symbol is whole; what may join is decided by text.
    symbols.push_back({static_cast<uint32_t>(position), static_cast<uint32_t>(length),
                       whole ? whole->value : -1});
    position += length;
  }
  return position;
}

void ScoredBpe::Encode(std::string_view word, BpeScratch& scratch,
                       std::vector<TokenId>& out) const {
  Halves halves;
  const auto find_merge = [&](const BpeSymbol& left,
                              const BpeSymbol& right) -> std::optional<BpeMerge> {
    const size_t length = left.length + right.length;
    if (left.id >= 0 || right.id >= 0 || length > piece_bytes_max_) return std::nullopt;
    const std::string_view joined = word.substr(left.begin, length);
    const std::optional<TokenId> id = vocabulary_.Find(joined);
    if (!id || ranks_[*id] < 0) return std::nullopt;
    if (has_unused_ && vocabulary_.type(*id) == TokenType::kUnused) halves[joined] = left.length;
    return BpeMerge{ranks_[*id], -1};
  };
  for (size_t begin = 0; begin < word.size();) {
    begin = AddSymbols(word, begin, scratch.symbols);
    MergeSymbols(scratch, find_merge);
    for (const BpeSymbol& symbol : scratch.symbols) {
      if (symbol.id >= 0) {
        out.push_back(symbol.id);
      } else {
        Append(word.substr(symbol.begin, symbol.length), halves, out);
      }
    }
  }
}

void ScoredBpe::Append(std::string_view piece, const Halves& halves,
                       std::vector<TokenId>& out) const {
  const std::optional<TokenId> id = vocabulary_.Find(piece);
  if (!id || ranks_[*id] < 0) {
    AppendUnknown(piece, out);
    return;
  }
  const auto left = halves.find(piece);
  if (vocabulary_.type(*id) != TokenType::kUnused || left == halves.end()) {
    out.push_back(*id);
    return;
  }
  Append(piece.substr(0, left->second), halves, out);
  Append(piece.substr(left->second), halves, out);
}

Result<std::unique_ptr<const BpeModel>> RankedCharacterBpe::Create(const TokenizerSpec& spec,
                                                                   const Vocabulary& vocabulary) {
  QUIRE_ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Create(spec.merges, vocabulary));
  return std::unique_ptr<const BpeModel>(
      std::make_unique<RankedCharacterBpe>(spec, vocabulary, std::move(merges)));
}

size_t RankedCharacterBpe::AddSymbols(std::string_view word, size_t begin,
                                      std::vector<BpeSymbol>& symbols) const {
  symbols.clear();
  size_t position = begin;
  while (position < word.size() && (position == begin || !MayCutBefore(word, position))) {
    const size_t length = CharacterLength(word[position]);
    const std::optional<TokenId> id = vocabulary_.Find(word.substr(position, length));
    symbols.push_back(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(length), id.value_or(-1)});
    position += length;
  }
  return position;
}

void RankedCharacterBpe::Encode(std::string_view word, BpeScratch& scratch,
                                std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> id = vocabulary_.Find(word)) {
      out.push_back(*id);
      return;
    }
  }
  const auto find_merge = [&](const BpeSymbol& left,
                              const BpeSymbol& right) -> std::optional<BpeMerge> {
    if (left.id < 0 || right.id < 0) return std::nullopt;
    return merges_.Find(left.id, right.id);
  };
  for (size_t begin = 0; begin < word.size();) {
    begin = AddSymbols(word, begin, scratch.symbols);
    MergeSymbols(scratch, find_merge);
    for (const BpeSymbol& symbol : scratch.symbols) {
      if (symbol.id >= 0) {
        out.push_back(symbol.id);
      } else {
        AppendUnknown(word.substr(symbol.begin, symbol.length), out);
      }
    }
  }
}

}  // namespace quire::text
