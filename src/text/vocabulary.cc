#include "text/vocabulary.h"

#include <fmt/format.h>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace quire::text {
namespace {

constexpr size_t kTokensMax = size_t{1} << 24;

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

void AppendWithSpaces(std::string_view piece, std::string& out) {
  for (size_t at = piece.find(kMetaspace); at != std::string_view::npos;
       at = piece.find(kMetaspace)) {
    out.append(piece.substr(0, at)).push_back(' ');
    piece.remove_prefix(at + kMetaspace.size());
  }
  out.append(piece);
}

void AppendBytes(std::string_view piece, TokenType type, TokenizerKind kind, std::string& out) {
  if (type == TokenType::kByte) {
    if (const std::optional<uint8_t> byte = ReadByteToken(piece)) {
      out.push_back(static_cast<char>(*byte));
      return;
    }
  }
  const bool is_literal = type == TokenType::kControl || type == TokenType::kUnknown;
  if (!is_literal && kind == TokenizerKind::kSentencePieceBpe) {
    AppendWithSpaces(piece, out);
  } else if (!is_literal && type != TokenType::kUserDefined) {
    out.append(ReadByteLetters(piece).value_or(std::string(piece)));
  } else {
    out.append(piece);
  }
}

}  // namespace

std::optional<uint8_t> ReadByteToken(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const std::optional<int> high = HexDigit(piece[3]);
  const std::optional<int> low = HexDigit(piece[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

Result<Vocabulary> Vocabulary::Create(TokenizerSpec& spec) {
  if (spec.tokens.empty() || spec.tokens.size() > kTokensMax) {
    return MakeError(ErrorKind::kInvalid, "the vocabulary has {} tokens, expected 1 to {}",
                     spec.tokens.size(), kTokensMax);
  }
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    return MakeError(ErrorKind::kInvalid, "the vocabulary has {} tokens but {} token types",
                     spec.tokens.size(), spec.types.size());
  }
  Vocabulary vocabulary;
  vocabulary.pieces_ = std::move(spec.tokens);
  vocabulary.types_ = std::move(spec.types);
  vocabulary.types_.resize(vocabulary.pieces_.size(), TokenType::kNormal);
  vocabulary.starts_.reserve(vocabulary.pieces_.size() + 1);
  vocabulary.ids_.reserve(vocabulary.pieces_.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view piece = vocabulary.pieces_[id];
    vocabulary.starts_.push_back(vocabulary.bytes_.size());
    AppendBytes(piece, vocabulary.types_[id], spec.kind, vocabulary.bytes_);
    if (!piece.empty()) vocabulary.ids_.try_emplace(piece, id);
  }
  vocabulary.starts_.push_back(vocabulary.bytes_.size());
  return vocabulary;
}

std::optional<TokenId> Vocabulary::Find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<TokenId> Vocabulary::ByteToken(uint8_t byte) const {
  return Find(fmt::format("<0x{:02X}>", byte));
}

}  // namespace quire::text
