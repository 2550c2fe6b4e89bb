// Speculator: who drafts for whom, and how much.
//
// Owns the drafters, cheapest first: the first that has an idea for a sequence drafts for it.
// Called by the engine's thread, between steps.
//
// Without a fixed number of tokens it drafts what pays (draft_lengths.h): it keeps each sequence's
// acceptance, what steps take by their rows, and what drafting costs. Where nothing pays, one
// sequence drafts now and then to see whether that is still so, ever more seldom; where it does
// pay, a step now and then does without, so that what plain decoding takes stays known.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "engine/draft_lengths.h"
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
  static constexpr int kLengthMax = 16;  // drafted at once where nobody says how much

  explicit Speculator(const SpeculationOptions& options);

  // Cheaper ones first.
  void Add(std::unique_ptr<Drafter> drafter);
  bool active() const { return !drafters_.empty(); }

  // Proposes drafts to the scheduler for the running sequences that decode. `skip` leaves out
  // sequences; `trim` shortens a draft to what may come at all.
  void Propose(sched::Scheduler& scheduler, base::FunctionRef<bool(SequenceId)> skip,
               base::FunctionRef<void(SequenceId, std::vector<TokenId>&)> trim);

  // A step verified `drafted` tokens of the sequence, the first `accepted` of which were right.
  void Observe(SequenceId sequence, int drafted, int accepted);
  // A step of so many rows took so long, drafting aside.
  void ObserveStep(int rows, double seconds) { times_.Observe(rows, seconds); }

  void Forget(const sched::Sequence& sequence, const sched::Request& request);

  const SpeculationStats& stats() const { return stats_; }

 private:
  struct Entry {
    std::unique_ptr<Drafter> drafter;
    Acceptance acceptance;  // over all sequences
    bool pays = false;      // when last looked at
    int steps_off = 0;      // in which it did not, until one tries again
    int probe_interval = 0;
  };
  struct History {
    std::vector<Acceptance> acceptance;  // [drafters]
    size_t drafted_by = 0;               // in the step under way
  };

  void CollectJobs(const sched::Scheduler& scheduler, base::FunctionRef<bool(SequenceId)> skip);
  void SetLengths(size_t drafter);
  History& HistoryOf(SequenceId id);

  std::optional<int> fixed_length_;
  std::vector<Entry> drafters_;
  std::vector<History> histories_;  // by SequenceId
  StepTimes times_;
  int rows_ = 0;       // of the step that is planned, with the drafts so far
  int steps_on_ = 0;   // with drafts, since the last one without
  size_t probed_ = 0;  // whose turn it was
  std::vector<DraftJob> jobs_;
  std::vector<int> most_;  // [jobs]
  std::vector<DraftJob*> asked_;
  std::vector<DraftWish> wishes_;  // [asked]
  SpeculationStats stats_;
};

}  // namespace quire::engine
