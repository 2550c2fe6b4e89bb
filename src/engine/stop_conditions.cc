#include "engine/stop_conditions.h"

#include <algorithm>

namespace quire::engine {

using sched::FinishReason;

StopConditions::StopConditions(const sched::SamplingParams& params,
                               std::span<const TokenId> eos_ids, int tokens_left)
    : end_ids_(params.stop_token_ids),
      min_tokens_(params.min_tokens),
      max_tokens_(std::max(0, std::min(params.max_tokens, tokens_left))) {
  if (!params.ignore_eos) end_ids_.insert(end_ids_.end(), eos_ids.begin(), eos_ids.end());
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

bool StopConditions::IsEndToken(TokenId token) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), token);
}

std::optional<FinishReason> StopConditions::AfterToken(TokenId token, int output_tokens) const {
  if (output_tokens > min_tokens_ && IsEndToken(token)) return FinishReason::kStop;
  if (output_tokens >= max_tokens_) return FinishReason::kLength;
  return std::nullopt;
}

std::span<const TokenId> StopConditions::BannedAt(int output_tokens) const {
  if (output_tokens >= min_tokens_) return {};
  return end_ids_;
}

}  // namespace quire::engine
