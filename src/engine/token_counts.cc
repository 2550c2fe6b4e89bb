#include "engine/token_counts.h"

#include <algorithm>

#include "base/check.h"

namespace quire::engine {

TokenCounts::TokenCounts(std::span<const TokenId> prompt) {
  std::vector<TokenId> sorted(prompt.begin(), prompt.end());
  std::sort(sorted.begin(), sorted.end());
  for (TokenId token : sorted) {
    if (entries_.empty() || entries_.back().token != token) entries_.push_back({token, 0, 0});
    ++entries_.back().prompt;
  }
}

std::vector<TokenCounts::Entry>::iterator TokenCounts::Find(TokenId token) {
  return std::lower_bound(entries_.begin(), entries_.end(), token,
                          [](const Entry& entry, TokenId wanted) { return entry.token < wanted; });
}

void TokenCounts::Append(TokenId token) {
  auto entry = Find(token);
  if (entry == entries_.end() || entry->token != token) {
    entry = entries_.insert(entry, {token, 0, 0});
  }
  ++entry->output;
  output_.push_back(token);
}

void TokenCounts::Truncate(int output_tokens) {
  QUIRE_CHECK(output_tokens >= 0 && output_tokens <= this->output_tokens());
  while (this->output_tokens() > output_tokens) {
    auto entry = Find(output_.back());
    output_.pop_back();
    if (--entry->output == 0 && entry->prompt == 0) entries_.erase(entry);
  }
}

}  // namespace quire::engine
