// TokenFilter: which tokens may come next in one sequence, whatever the model thinks of them.
//
// Joins what the request forbids: ends of text before min_tokens, the last tokens of bad_words,
// everything but allowed_token_ids, and what the constraint's grammar leaves out. Owns scratch for
// one vocabulary where it needs any; have one per sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sched/request.h"

namespace quire::engine {

class TokenFilter {
 public:
  // `eos_ids`: the model's ends of text. The parameters are valid (ValidateSampling).
  TokenFilter(const sched::SamplingParams& params, std::span<const TokenId> eos_ids,
              int vocab_size);

  struct Limits {
    std::span<const TokenId> banned = {};    // may not come
    std::span<const uint32_t> allowed = {};  // bit t % 32 of word t / 32: t may come; empty: all
  };

  // For the token that follows `output`, the sequence's own tokens so far. `grammar`: what the
  // constraint allows, as Limits::allowed. Valid until the next call, or as long as `grammar` is.
  Limits Next(std::span<const TokenId> output, std::span<const uint32_t> grammar);

 private:
  size_t min_tokens_;
  std::vector<std::vector<TokenId>> bad_words_;
  std::vector<TokenId> end_tokens_;    // not before min_tokens
  std::vector<uint32_t> allowed_ids_;  // allowed_token_ids as bits; empty: all
  std::vector<uint32_t> both_;         // allowed_ids_ within the grammar
  std::vector<TokenId> banned_;
};

}  // namespace quire::engine
