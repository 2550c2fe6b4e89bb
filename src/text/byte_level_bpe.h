// BPE over bytes: every byte has a token, so that no text is unknown. Made by MakeBpeModel.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>

#include "text/bpe_model.h"
#include "text/merge_table.h"

namespace quire::text {

class ByteLevelBpe : public BpeModel {
 public:
  static Result<std::unique_ptr<const BpeModel>> Create(const TokenizerSpec& spec,
                                                        const Vocabulary& vocabulary);
  ByteLevelBpe(const TokenizerSpec& spec, const Vocabulary& vocabulary, MergeTable merges);

  void Encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const override;

 private:
  MergeTable merges_;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> byte_ids_;  // negative: the vocabulary has no token for the byte
  // With ignore_merges: whole words by their bytes (views into the vocabulary); else empty.
  std::unordered_map<std::string_view, TokenId> words_;
};

}  // namespace quire::text
