#include "text/stream_decoder.h"

namespace quire::text {

void StreamDecoder::Append(TokenId id, std::string& text) {
  if (!tokenizer_->Contains(id)) return;
  const TokenType type = tokenizer_->Type(id);
  if (skip_special_ && (type == TokenType::kControl || type == TokenType::kUnknown)) return;
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return;
  if (drop_space_) {
    drop_space_ = false;
    if (bytes.starts_with(' ')) bytes.remove_prefix(1);
  }
  utf8_.Append(bytes, text);
}

}  // namespace quire::text
