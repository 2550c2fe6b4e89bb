#include "text/byte_level_bpe.h"

#include "text/byte_alphabet.h"
#include "text/sentencepiece_bpe.h"

namespace quire::text {

Result<std::unique_ptr<const BpeModel>> ByteLevelBpe::Create(const TokenizerSpec& spec,
                                                             const Vocabulary& vocabulary) {
  QUIRE_ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Create(spec.merges, vocabulary));
  return std::unique_ptr<const BpeModel>(
      std::make_unique<ByteLevelBpe>(spec, vocabulary, std::move(merges)));
}

ByteLevelBpe::ByteLevelBpe(const TokenizerSpec& spec, const Vocabulary& vocabulary,
                           MergeTable merges)
    : merges_(std::move(merges)), unknown_(spec.unk) {
  for (int byte = 0; byte < 256; ++byte) {
    // An added token may be spelled like a byte and means the character.
    const std::optional<TokenId> id = vocabulary.Find(ByteLetter(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = id && vocabulary.type(*id) == TokenType::kNormal ? *id : -1;
  }
  if (!spec.ignore_merges) return;
  words_.reserve(vocabulary.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.type(id) == TokenType::kNormal) words_.try_emplace(vocabulary.bytes(id), id);
  }
}

void ByteLevelBpe::Encode(std::string_view word, BpeScratch& scratch,
                          std::vector<TokenId>& out) const {
  if (!words_.empty()) {
    const auto found = words_.find(word);
    if (found != words_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  scratch.symbols.clear();
  for (size_t i = 0; i < word.size(); ++i) {
    scratch.symbols.push_back(
        {static_cast<uint32_t>(i), 1, byte_ids_[static_cast<uint8_t>(word[i])]});
  }
  MergeSymbols(scratch, [this](const BpeSymbol& left, const BpeSymbol& right) {
    return left.id < 0 || right.id < 0 ? std::nullopt : merges_.Find(left.id, right.id);
  });
  for (const BpeSymbol& symbol : scratch.symbols) {
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
    } else if (unknown_) {
      out.push_back(*unknown_);
    }
  }
}

Result<std::unique_ptr<const BpeModel>> MakeBpeModel(const TokenizerSpec& spec,
                                                     const Vocabulary& vocabulary,
                                                     const std::vector<std::string>& whole_pieces) {
  if (spec.kind == TokenizerKind::kByteLevelBpe) return ByteLevelBpe::Create(spec, vocabulary);
  if (!spec.merges.empty()) return RankedCharacterBpe::Create(spec, vocabulary);
  return ScoredBpe::Create(spec, vocabulary, whole_pieces);
}

}  // namespace quire::text
