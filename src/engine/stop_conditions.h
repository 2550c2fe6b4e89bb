// StopConditions: when a sequence ends by its tokens or their number. Stop strings are matched in
// the text (text/stop_matcher.h); this class only says from where on they count.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sched/request.h"

namespace quire::engine {

class StopConditions {
 public:
  // tokens_left: how many output tokens the context has room for.
  StopConditions(const sched::SamplingParams& params, std::span<const TokenId> eos_ids,
                 int tokens_left);

  // Whether the sequence ends with `token`, its output token number `output_tokens` (from 1).
  std::optional<sched::FinishReason> AfterToken(TokenId token, int output_tokens) const;

  // Tokens that must not be drawn when `output_tokens` are there already: the ones that would end
  // the sequence before min_tokens.
  std::span<const TokenId> BannedAt(int output_tokens) const;

  // Whether a stop string found in a text of this many output tokens ends the sequence.
  bool StopStringsCountAt(int output_tokens) const { return output_tokens >= min_tokens_; }

  bool IsEndToken(TokenId token) const;
  int max_tokens() const { return max_tokens_; }  // 0: nothing may be generated

 private:
  std::vector<TokenId> end_ids_;  // ascending
  int min_tokens_;
  int max_tokens_;
};

}  // namespace quire::engine
