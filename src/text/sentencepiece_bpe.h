// The two BPE models over characters: SentencePiece's own (scores) and its form in tokenizer.json
// (ranked merges). Made by MakeBpeModel.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>

#include "text/bpe_model.h"
#include "text/byte_trie.h"
#include "text/merge_table.h"

namespace quire::text {

// What both do with characters that have no token, and where a text may be cut beforehand.
class CharacterBpe : public BpeModel {
 public:
  CharacterBpe(const TokenizerSpec& spec, const Vocabulary& vocabulary);

 protected:
  // Where no token has a space after something else, no merge reaches over such a place, and each
  // stretch between two can be merged alone: short lists instead of one as long as the text.
  bool MayCutBefore(std::string_view word, size_t position) const;
  void AppendUnknown(std::string_view characters, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = true;
  bool spaces_start_pieces_ = true;
  std::optional<TokenId> unknown_;
  std::array<std::optional<TokenId>, 256> byte_tokens_;
};

// Follows SentencePiece's bpe_model: any two neighbours may join whose text is a piece.
class ScoredBpe : public CharacterBpe {
 public:
  static Result<std::unique_ptr<const BpeModel>> Create(
      const TokenizerSpec& spec, const Vocabulary& vocabulary,
      const std::vector<std::string>& whole_pieces);
  ScoredBpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
      : CharacterBpe(spec, vocabulary) {}

  void Encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  // How an unused piece came about, so that it can be taken apart again: the length of its left
  // half by its text.
  using Halves = std::unordered_map<std::string_view, uint32_t>;

  // Symbols of word[begin, ...) up to where it may be cut; returns that place.
  size_t AddSymbols(std::string_view word, size_t begin, std::vector<BpeSymbol>& symbols) const;
  void Append(std::string_view piece, const Halves& halves, std::vector<TokenId>& out) const;

  std::vector<int32_t> ranks_;  // by token: 0 = highest score; negative: not made by merging
  ByteTrie whole_pieces_;
  size_t piece_bytes_max_ = 0;
  bool has_unused_ = false;
};

class RankedCharacterBpe : public CharacterBpe {
 public:
  static Result<std::unique_ptr<const BpeModel>> Create(const TokenizerSpec& spec,
                                                        const Vocabulary& vocabulary);
  RankedCharacterBpe(const TokenizerSpec& spec, const Vocabulary& vocabulary, MergeTable merges)
      : CharacterBpe(spec, vocabulary),
        merges_(std::move(merges)),
        ignore_merges_(spec.ignore_merges) {}

  void Encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  size_t AddSymbols(std::string_view word, size_t begin, std::vector<BpeSymbol>& symbols) const;

  MergeTable merges_;
  bool ignore_merges_ = false;
};

}  // namespace quire::text
