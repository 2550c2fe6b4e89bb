#include "engine/token_filter.h"

#include <algorithm>

namespace quire::engine {

TokenFilter::TokenFilter(const sched::SamplingParams& params, std::span<const TokenId> eos_ids,
                         int vocab_size)
    : min_tokens_(static_cast<size_t>(params.min_tokens)), bad_words_(params.bad_words) {
  if (params.min_tokens > 0) end_tokens_ = sched::EndTokens(params, eos_ids);
  if (params.allowed_token_ids.empty()) return;
  allowed_ids_.resize((static_cast<size_t>(vocab_size) + 31) / 32);
  for (const TokenId token : params.allowed_token_ids) allowed_ids_[token / 32] |= 1u << token % 32;
}

TokenFilter::Limits TokenFilter::Next(std::span<const TokenId> output,
                                      std::span<const uint32_t> grammar) {
  banned_.clear();
  if (output.size() < min_tokens_) banned_ = end_tokens_;
  for (const std::vector<TokenId>& word : bad_words_) {
    const std::span<const TokenId> before = std::span(word).first(word.size() - 1);
    if (before.size() > output.size()) continue;
    if (std::ranges::equal(before, output.last(before.size()))) banned_.push_back(word.back());
  }
  if (allowed_ids_.empty()) return {banned_, grammar};
  if (grammar.empty()) return {banned_, allowed_ids_};
  both_ = allowed_ids_;
  for (size_t i = 0; i < both_.size(); ++i) both_[i] &= grammar[i];
  return {banned_, both_};
}

}  // namespace quire::engine
