// Scheduler::CheckInvariants: recounts queues, states and leases from the sequences themselves.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

void Scheduler::CheckInvariants() const {
  cache_.CheckInvariants();
  int waiting = 0;
  int running = 0;
  int leases = 0;
  int waiting_new = 0;
  for (const auto& request : requests_) {
    if (!request) continue;
    waiting_new += !request->admitted_before && !request->finished;
    QUIRE_CHECK_EQ(static_cast<int>(request->sequences.size()), request->request.sequences());
    bool all_finished = true;
    for (SequenceId id : request->sequences) {
      const Sequence& s = sequence(id);
      QUIRE_CHECK(s.request == request->id);
      all_finished &= s.state == SequenceState::kFinished;
      const auto queued = std::ranges::count(waiting_, id);
      const auto placed = std::ranges::count(running_, id);
      QUIRE_CHECK_EQ(queued, s.state == SequenceState::kWaiting);
      QUIRE_CHECK_EQ(placed, s.state == SequenceState::kRunning);
      QUIRE_CHECK_EQ(s.lease.held(), s.state == SequenceState::kRunning);
      QUIRE_CHECK_EQ(s.finish_reason.has_value() && !in_step_,
                     s.state == SequenceState::kFinished && !in_step_);
      waiting += s.state == SequenceState::kWaiting;
      running += s.state == SequenceState::kRunning;
      leases += s.lease.held() + s.survivors.held();
      if (s.survivors.held()) QUIRE_CHECK(in_step_ || !evictions_.empty());
      if (s.evicted > 0 && s.lease.held()) {
        QUIRE_CHECK(cache_.is_private(s.lease));
        if (!in_step_ && evictions_.empty()) {
          QUIRE_CHECK_LT(s.lease.committed(), s.eviction->slots_max());
        }
      }
      // What a step took for drafts that were wrong is free at its end.
      if (s.lease.held() && !in_step_) QUIRE_CHECK_EQ(s.lease.reserved(), s.lease.committed());
      if (!s.drafts.empty()) QUIRE_CHECK(s.state == SequenceState::kRunning);
      if (s.lease.held()) QUIRE_CHECK_LE(s.computed(), static_cast<int>(s.tokens.size()));
    }
    QUIRE_CHECK_EQ(request->finished, all_finished);
    QUIRE_CHECK_LE(request->overtaken, options_.max_overtakes);
  }
  QUIRE_CHECK_EQ(waiting, static_cast<int>(waiting_.size()));
  QUIRE_CHECK_EQ(running, static_cast<int>(running_.size()));
  QUIRE_CHECK_EQ(leases, cache_.leases_held());
  QUIRE_CHECK_EQ(waiting_new, requests_waiting_new_);
  QUIRE_CHECK_LE(SeatsTaken(), options_.max_num_seqs);
  QUIRE_CHECK(std::ranges::is_sorted(
      running_, [&](SequenceId a, SequenceId b) { return RanksBefore(a, b); }));
}

}  // namespace quire::sched
