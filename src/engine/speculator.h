// Speculator: who drafts for whom, and how much.
//
// Owns the drafters, cheapest first: the first that has an idea for a sequence drafts for it.
// Called by the engine's thread, between steps.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "engine/drafter.h"
#include "engine/engine_options.h"
#include "sched/scheduler.h"

namespace quire::engine {

// Counters since the start.
struct SpeculationStats {
  static constexpr int kPositions = 16;  // the last one counts all beyond, too

  int64_t drafts = 0;                                // runs of tokens that were verified
  int64_t draft_tokens = 0;                          // of these, all
  int64_t accepted_tokens = 0;                       // and those that were right
  std::array<int64_t, kPositions> accepted_at = {};  // by place in its draft
  double propose_s = 0;                              // spent on drafting
};

class Speculator {
 public:
  explicit Speculator(const SpeculationOptions& options);

  // Cheaper ones first.
  void Add(std::unique_ptr<Drafter> drafter) { drafters_.push_back(std::move(drafter)); }
  bool active() const { return !drafters_.empty(); }

  // Proposes drafts to the scheduler for the running sequences that decode. `skip` leaves out
  // sequences; `trim` shortens a draft to what may come at all.
  void Propose(sched::Scheduler& scheduler, base::FunctionRef<bool(SequenceId)> skip,
               base::FunctionRef<void(SequenceId, std::vector<TokenId>&)> trim);

  // A step verified `drafted` tokens of the sequence, the first `accepted` of which were right.
  void Observe(SequenceId sequence, int drafted, int accepted);

  void Forget(const sched::Sequence& sequence, const sched::Request& request);

  const SpeculationStats& stats() const { return stats_; }

 private:
  int length_ = 4;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  std::vector<DraftJob> jobs_;
  std::vector<DraftJob*> asked_;
  SpeculationStats stats_;
};

}  // namespace quire::engine
