#include "text/stream_decoder.h"

#include <algorithm>

namespace quire::text {

bool StreamDecoder::Skips(TokenId id) const {
  if (!skip_special_) return false;
  const TokenType type = tokenizer_->Type(id);
  return (type == TokenType::kControl || type == TokenType::kUnknown) &&
         std::ranges::find(shown_special_, id) == shown_special_.end();
}

void StreamDecoder::Append(TokenId id, std::string& text) {
  if (!tokenizer_->Contains(id) || Skips(id)) return;
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return;
  if (drop_space_) {
    drop_space_ = false;
    if (bytes.starts_with(' ')) bytes.remove_prefix(1);
  }
  utf8_.Append(bytes, text);
}

}  // namespace quire::text
