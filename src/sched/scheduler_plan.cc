// Scheduler::Schedule: the part of a step that belongs to running sequences.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

const StepPlan& Scheduler::Schedule(std::span<const SequenceId> sitting_out) {
  QUIRE_CHECK(!in_step_);  // the plan before must be committed first
  QUIRE_CHECK(evictions_.empty());
  DropFinished();
  plan_.sequences.clear();
  plan_.samplers.clear();
  plan_.copies.clear();
  plan_.admitted.clear();
  plan_.preempted.clear();
  plan_.decode_tokens = plan_.prefill_tokens = plan_.draft_tokens = plan_.recomputed_tokens = 0;
  prefill_runs_.clear();
  prefilling_.clear();
  short_of_memory_ = false;

  PlanRunning(sitting_out);
  AdaptHeadroom();
  seats_taken_ = SeatsTaken();
  if (!short_of_memory_) Admit();
  PlanDrafts();
  // Sequences are run in the order decode, prefill; ranks decided who got memory.
  plan_.sequences.insert(plan_.sequences.end(), prefill_runs_.begin(), prefill_runs_.end());
  const auto copies = cache_.pending_copies();
  plan_.copies.assign(copies.begin(), copies.end());

  in_step_ = !plan_.empty();
  if (in_step_) {
    plan_.step = counters_.steps++;
    counters_.steps_mixed += plan_.decode_tokens > 0 && plan_.prefill_tokens > 0;
    counters_.decode_tokens += plan_.decode_tokens;
    counters_.prefill_tokens += plan_.prefill_tokens;
    counters_.draft_tokens += plan_.draft_tokens;
    counters_.recomputed_tokens += plan_.recomputed_tokens;
  }
  return plan_;
}

void Scheduler::PlanRunning(std::span<const SequenceId> sitting_out) {
  // Decodes first: what they take of the budget is known before any prefill gets its share.
  prefill_budget_ = options_.max_num_batched_tokens;
  const auto sits_out = [&](SequenceId id) {
    return std::ranges::find(sitting_out, id) != sitting_out.end();
  };
  for (SequenceId id : running_) prefill_budget_ -= At(id).uncomputed() == 1 && !sits_out(id);
  // In the order of rank, so that memory goes to the first of them and is taken from the last.
  for (planning_place_ = 0; planning_place_ < running_.size(); ++planning_place_) {
    const SequenceId id = running_[planning_place_];
    if (!sits_out(id)) PlanRun(At(id));
  }
}

void Scheduler::PlanRun(Sequence& sequence) {
  const int uncomputed = sequence.uncomputed();
  if (sequence.awaits_siblings()) return;
  const bool decodes = uncomputed == 1;
  if (!decodes) prefilling_.push_back(sequence.id);
  const int wanted = decodes ? 1 : std::min(uncomputed, prefill_budget_);
  if (wanted == 0) return;
  const int tokens = MakeRoom(sequence, wanted) ? wanted : MostTokens(sequence, wanted);
  if (tokens == 0) {
    // It keeps what it has: preempting it would only cost the work done.
    ++counters_.stalls;
    short_of_memory_ = true;
    if (decodes) ++prefill_budget_;
    return;
  }
  QUIRE_CHECK(cache_.Extend(sequence.lease, sequence.lease.committed() + tokens));
  if (!decodes) prefill_budget_ -= tokens;
  AddRun(sequence, tokens);
}

// Whether so many more tokens fit, after preempting sequences of lower rank where that helps.
bool Scheduler::MakeRoom(const Sequence& sequence, int tokens) {
  const int survivors = FramesForSurvivors(sequence, sequence.computed() + tokens);
  const int length = sequence.lease.committed() + tokens;
  while (cache_.FramesToExtend(sequence.lease, length) + survivors > cache_.frames_available()) {
    if (!PreemptFor(sequence)) return false;
  }
  return true;
}

// How many of `wanted` more tokens fit where not all do.
int Scheduler::MostTokens(const Sequence& sequence, int wanted) const {
  const int held = sequence.lease.committed();
  const bool evicts = FramesForSurvivors(sequence, sequence.computed() + wanted) > 0;
  return cache_.LongestExtension(sequence.lease, held + wanted - evicts) - held;
}

// Preempts the last running sequence of lower rank whose release frees a frame, or spares this one
// the copy of a tail they share. Sequences that hold nothing alone free frames only together: then
// all of them, last first, until one comes free. At last, beams that only wait for their siblings.
bool Scheduler::PreemptFor(const Sequence& sequence) {
  for (size_t i = running_.size() - 1; i > planning_place_; --i) {
    const kv::Lease& victim = At(running_[i]).lease;
    if (cache_.is_private(victim)) continue;
    if (cache_.FramesFreedByRelease(victim) > 0 || cache_.SharesTail(sequence.lease, victim)) {
      Preempt(i);
      return true;
    }
  }
  if (cache_.FreesTogether(LeasesBehind(planning_place_))) {
    const int available = cache_.frames_available();
    for (size_t i = running_.size() - 1; cache_.frames_available() == available; --i) {
      if (!cache_.is_private(At(running_[i]).lease)) Preempt(i);
    }
    return true;
  }
  for (size_t i = planning_place_; i-- > 0;) {
    if (!At(running_[i]).awaits_siblings()) continue;
    Preempt(i);
    return true;
  }
  return false;
}

std::span<const kv::Lease* const> Scheduler::LeasesBehind(size_t place) {
  leases_scratch_.clear();
  for (size_t i = place + 1; i < running_.size(); ++i) {
    const kv::Lease& lease = At(running_[i]).lease;
    if (!cache_.is_private(lease)) leases_scratch_.push_back(&lease);
  }
  return leases_scratch_;
}

void Scheduler::Preempt(size_t place) {
  Sequence& sequence = At(running_[place]);
  if (sequence.uncomputed() == 1) ++prefill_budget_;
  sequence.lease = kv::Lease();
  sequence.state = SequenceState::kWaiting;
  sequence.drafts.clear();
  ++sequence.preemptions;
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(place));
  if (place < planning_place_) --planning_place_;
  waiting_.push_back(sequence.id);
  plan_.preempted.push_back(sequence.id);
  short_of_memory_ = true;
  ++counters_.preemptions;
}

void Scheduler::PreemptAll() {
  QUIRE_CHECK(!in_step_);
  for (size_t i = running_.size(); i-- > 0;) {
    if (!cache_.is_private(At(running_[i]).lease)) Preempt(i);
  }
}

void Scheduler::AddRun(Sequence& sequence, int tokens) {
  const RequestState& request = RequestOf(sequence);
  const bool decodes = sequence.uncomputed() == 1;
  ScheduledSequence run{.sequence = sequence.id,
                        .first_position = sequence.computed(),
                        .tokens = tokens,
                        .logits_begin = tokens,
                        .samplers_begin = static_cast<int>(plan_.samplers.size()),
                        .samplers_end = 0};
  if (tokens == sequence.uncomputed() && request.request.sampling.max_tokens > 0) {
    run.logits_begin = tokens - 1;
    plan_.samplers.push_back(sequence.id);
    for (SequenceId id : request.sequences) {
      if (At(id).state == SequenceState::kUnforked && !request.beams) plan_.samplers.push_back(id);
    }
  }
  run.samplers_end = static_cast<int>(plan_.samplers.size());
  ReserveSurvivors(run);
  if (request.request.sampling.prompt_logprobs &&
      sequence.prompt_logits_done < sequence.prompt_tokens - 1) {
    const int begin = std::max(0, sequence.prompt_logits_done - run.first_position);
    run.logits_begin = std::min(run.logits_begin, begin);
  }
  const int end = run.first_position + tokens;
  plan_.recomputed_tokens +=
      std::max(0, std::min(end, sequence.tokens_computed_max) - run.first_position);
  (decodes ? plan_.decode_tokens : plan_.prefill_tokens) += tokens;
  (decodes ? plan_.sequences : prefill_runs_).push_back(run);
}

int Scheduler::DraftsMax(SequenceId id) const {
  const Sequence& sequence = this->sequence(id);
  const RequestState& request = RequestOf(sequence);
  if (sequence.state != SequenceState::kRunning || request.beams) return 0;
  // What a rejected token attended to must not count, and the step scores what it computes.
  if (sequence.eviction) return 0;
  // The first token may be drawn for several sequences.
  if (sequence.output_tokens() == 0 || sequence.uncomputed() != 1) return 0;
  // All of them accepted, the step gives one token more.
  int most = MaxTokensOf(request.request) - sequence.output_tokens() - 1;
  // Completing a residual group seals it, and what is sealed cannot be taken back.
  const int residual = cache_.options().residual_tokens;
  const int certain = static_cast<int>(sequence.tokens.size());
  if (residual > 0) most = std::min(most, residual - 1 - certain % residual);
  return std::max(0, most);
}

void Scheduler::Propose(SequenceId id, std::span<const TokenId> drafts) {
  QUIRE_CHECK(!in_step_);
  QUIRE_CHECK_LE(static_cast<int>(drafts.size()), DraftsMax(id));
  At(id).drafts.assign(drafts.begin(), drafts.end());
}

// Lengthens the decode runs by their drafts. By rank, as with all that is scarce.
void Scheduler::PlanDrafts() {
  int budget = options_.max_num_batched_tokens - plan_.tokens();
  for (ScheduledSequence& run : plan_.sequences) {
    Sequence& sequence = At(run.sequence);
    const int certain = run.first_position + run.tokens;
    int drafts = std::min(static_cast<int>(sequence.drafts.size()), budget);
    while (drafts > 0 && cache_.FramesToExtend(sequence.lease, certain + drafts, drafts) >
                             cache_.frames_available()) {
      --drafts;
    }
    if (drafts == 0) continue;
    QUIRE_CHECK(cache_.Extend(sequence.lease, certain + drafts, drafts));
    run.tokens += drafts;
    run.drafts = drafts;
    plan_.draft_tokens += drafts;
    budget -= drafts;
  }
}

}  // namespace quire::sched
