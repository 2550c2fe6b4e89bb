// TokenCounts: which tokens a sequence has seen and how often, for the penalties.
//
// Owned beside a sequence that has penalties; memory grows with the distinct tokens, not with the
// vocabulary. Append and Truncate are exact inverses, so that rejected drafts leave no trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire::engine {

class TokenCounts {
 public:
  struct Entry {
    TokenId token = 0;
    int32_t prompt = 0;  // occurrences in the prompt
    int32_t output = 0;  // occurrences in the output
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  explicit TokenCounts(std::span<const TokenId> prompt);

  void Append(TokenId token);  // to the output
  // Takes back the newest output tokens until `output_tokens` are left.
  void Truncate(int output_tokens);

  int output_tokens() const { return static_cast<int>(output_.size()); }
  // Every token seen, by ascending id.
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry>::iterator Find(TokenId token);

  std::vector<Entry> entries_;
  std::vector<TokenId> output_;
};

}  // namespace quire::engine
