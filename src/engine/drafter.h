// Drafter: guesses what a sequence will say next, for the model to check several tokens in one
// step.
//
// A guess decides nothing. The engine draws every token from the model's own logits with the
// position's own key, and a draft counts if it is what was drawn (docs/SPECULATION.md); so a
// drafter may be wrong, forgetful or silent, and no answer depends on it. What a drafter costs and
// how often it is right is all that matters.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "sched/request.h"
#include "sched/sequence.h"

namespace quire::engine {

// A sequence that wants drafts. Views stay valid during Drafter::Propose.
struct DraftJob {
  const sched::Sequence* sequence = nullptr;  // decodes: all its tokens but the last are computed
  const sched::Request* request = nullptr;
  int drafts_max = 0;           // >= 1
  std::vector<TokenId> drafts;  // the answer: what follows sequence->tokens; empty: no idea
};

// Called by the engine's thread, between steps.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;

  // Fills in `drafts` of jobs where it has an idea.
  virtual void Propose(std::span<DraftJob* const> jobs) = 0;

  // What drafting one more token takes for all that drafted lately, not counting how it caught up
  // with their texts; 0 where that is nothing beside a step.
  virtual double PassSeconds() const { return 0; }

  // The sequence has ended; its id will be used again. Its tokens are still readable.
  virtual void Forget(const sched::Sequence& sequence, const sched::Request& request) = 0;
};

}  // namespace quire::engine
