// Sequence: one row of tokens under generation, and its hold on KV memory.
//
// Owned and written by the Scheduler alone; everybody else reads.
//
//     tokens  |<--- prompt_tokens --->|<-- output -->|
//     KV      |<-- lease.committed() -->|  computed; the rest is still to compute
//
// Once tokens were evicted, the lease counts slots: `evicted` fewer than tokens computed.
//
// `drafts` are guesses of what follows `tokens`. They are no part of the sequence: the step that
// computes them beside the sequence's own token says which were right, and drops them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/kv_cache.h"
#include "sched/request.h"
#include "sched/step_plan.h"

namespace quire {
// A request the scheduler knows. Ids are used again after a request was dropped.
using RequestId = StrongId<struct RequestTag>;
}  // namespace quire

namespace quire::sched {

enum class SequenceState {
  kWaiting,   // for its first step, or to resume after a preemption
  kUnforked,  // for its sibling 0 to compute the prompt they share
  kRunning,   // holds a lease
  kFinished,
};

struct Sequence {
  SequenceId id;
  RequestId request;
  int index = 0;  // among the request's sequences; sampling depends on (seed, index, position)

  std::vector<TokenId> tokens;  // empty while unforked
  int prompt_tokens = 0;
  kv::Lease lease;

  SequenceState state = SequenceState::kWaiting;
  std::optional<FinishReason> finish_reason;

  std::optional<kv::EvictionRule> eviction;
  int evicted = 0;      // tokens whose KV is gone
  kv::Lease survivors;  // during a step that ends in the first eviction: where the rest will go

  int cached_tokens = 0;  // prompt tokens found in the cache when first admitted
  int preemptions = 0;
  int tokens_computed_max = 0;  // most tokens ever computed: below it work is recomputation
  int prompt_logits_done = 0;   // prompt rows whose logits were delivered (prompt_logprobs)
  // Beam search: this beam's continuations, kept until all beams of the request have theirs.
  std::vector<TokenLogprob> candidates;
  std::vector<TokenId> drafts;  // only while running

  bool awaits_siblings() const { return !candidates.empty(); }
  int computed() const { return lease.held() ? evicted + lease.committed() : 0; }
  int uncomputed() const { return static_cast<int>(tokens.size()) - computed(); }
  int output_tokens() const { return std::max(0, static_cast<int>(tokens.size()) - prompt_tokens); }
  std::span<const TokenId> output() const {
    return std::span<const TokenId>(tokens).last(output_tokens());
  }
};

}  // namespace quire::sched
