// StepPlan: what one step computes, as plain data. Made by Scheduler::Schedule, read by the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/kv_cache.h"

namespace quire::sched {

// A run of one sequence's tokens through the model:
//
//     sequence.tokens  .....[first_position ... first_position + tokens)....
//     rows of the run        0   ..   logits_begin   ..   tokens - 1
//                                     |<- need logits ->|
//
// A decode run may be followed by drafts, tokens that somebody guessed to come:
//
//     sequence.tokens  ....[last]
//     sequence.drafts            [d0 ... ... d(drafts - 1)]....
//     rows of the run        0     1   ..    drafts = tokens - 1
//                            |<--- need logits, row i for the token after it --->|
struct ScheduledSequence {
  SequenceId sequence;
  int first_position = 0;  // equals the tokens already computed
  int tokens = 0;
  int logits_begin = 0;  // == tokens: no row needs logits
  int drafts = 0;        // of the tokens, the last ones: sequence.drafts[0, drafts)

  // plan.samplers[samplers_begin, samplers_end): the sequences that draw their next token from the
  // last row (with drafts: the sequence alone, from every row whose drafts were drawn before it).
  // Empty for a prefill chunk that does not reach the end; usually the sequence itself; all
  // siblings when the prompt of a request with n > 1 is complete.
  int samplers_begin = 0;
  int samplers_end = 0;

  bool samples() const { return samplers_end > samplers_begin; }
};

struct StepPlan {
  int64_t step = 0;
  // Decodes first, then prefill chunks. Positions and tokens: scheduler.sequence(id).
  std::vector<ScheduledSequence> sequences;
  std::vector<SequenceId> samplers;
  // To be executed in this order before the step's first layer.
  std::vector<kv::PendingCopy> copies;

  std::vector<SequenceId> admitted;   // hold a lease since this step (resumed ones included)
  std::vector<SequenceId> preempted;  // lost their lease; they resume by recomputation
  int decode_tokens = 0;
  int prefill_tokens = 0;
  int draft_tokens = 0;
  int recomputed_tokens = 0;  // of all tokens: those computed before and lost by preemption

  bool empty() const { return sequences.empty(); }
  int tokens() const { return decode_tokens + prefill_tokens + draft_tokens; }
  std::span<const SequenceId> samplers_of(const ScheduledSequence& run) const {
    return std::span<const SequenceId>(samplers).subspan(run.samplers_begin,
                                                         run.samplers_end - run.samplers_begin);
  }
};

// A sequence that has more slots after a step than it may keep. Every layer and KV head gives up
// all but `kept` of its `slots`; Scheduler::EvictionsDone says that they are moved.
//   survivors held: they go there from the lease, whose blocks others may share
//   else:           they go to the lease's first slots
struct PendingEviction {
  SequenceId sequence;
  int slots = 0;
  int kept = 0;
};

// A token and its log probability (natural logarithm).
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};

// What the sampler drew for one sequence of plan.samplers.
struct SequenceOutput {
  SequenceId sequence;
  // The tokens to append, in order: one; with drafts those of them that were drawn, and the token
  // drawn after them, if any was. Unused for beams.
  std::span<const TokenId> tokens;
  // Beam search: the best 2 * width continuations of this beam, by log probability, best first.
  std::span<const TokenLogprob> candidates;
};

}  // namespace quire::sched
