// Scheduler: sequences that keep only some of their tokens.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

kv::EvictionRule Scheduler::RuleOf(const Request& request) const {
  return kv::RuleFor(
      request.eviction, static_cast<int>(request.prompt.size()),
      {.residual_tokens = cache_.options().residual_tokens, .sinks = options_.sink_tokens});
}

Status Scheduler::CheckEviction(const Request& request) const {
  if (!request.eviction.evicts()) return Ok{};
  QUIRE_RETURN_IF_ERROR(kv::ValidateEviction(request.eviction));
  if (request.beam_search) {
    return MakeError(ErrorKind::kUsage,
                     "beam search and the eviction policy {} do not go together; leave one out",
                     kv::NameOf(request.eviction.policy));
  }
  const auto& groups = cache_.options().groups;
  if (std::ranges::any_of(groups,
                          [](const auto& group) { return group.window_tokens.has_value(); })) {
    return MakeError(ErrorKind::kUsage,
                     "this model's sliding windows give tokens up already; the eviction policy {} "
                     "is for models without them: use none",
                     kv::NameOf(request.eviction.policy));
  }
  const kv::EvictionRule rule = RuleOf(request);
  if (rule.slots_max() > options_.max_model_len) {
    return MakeError(ErrorKind::kUsage,
                     "an eviction budget of {} tokens needs room for {}; {} tokens are available "
                     "(max_model_len): lower the budget",
                     rule.budget, rule.slots_max(), options_.max_model_len);
  }
  // What it keeps is moved while what it had is still held.
  const int before = std::max(static_cast<int>(request.prompt.size()), rule.slots_max());
  const int needed = kv::KvCache::FramesForSequence(cache_.options(), before, 1) +
                     request.sequences() * cache_.FramesToReservePrivate(rule.slots_max());
  if (needed > cache_.options().frames) {
    return MakeError(ErrorKind::kUsage,
                     "{} tokens and {} times an eviction budget of {} need {} KV frames and {} are "
                     "available; shorten the prompt, lower the budget, or give the KV cache more "
                     "memory",
                     before, request.sequences(), rule.budget, needed, cache_.options().frames);
  }
  return Ok{};
}

// Whether a step after which `computed` tokens are computed, all there are, ends in an eviction.
bool Scheduler::Evicts(const Sequence& sequence, int computed) const {
  if (!sequence.eviction) return false;
  const int slots = computed - sequence.evicted;
  const bool grows = sequence.evicted > 0 || sequence.prompt_tokens <= sequence.eviction->budget;
  return grows ? sequence.eviction->EvictsGrown(slots) : sequence.eviction->EvictsPrompt(slots);
}

// Frames that a step up to `computed` tokens takes for what its sequence and those that fork from
// it keep.
int Scheduler::FramesForSurvivors(const Sequence& sequence, int computed) const {
  if (sequence.evicted > 0 || computed < static_cast<int>(sequence.tokens.size())) return 0;
  if (!Evicts(sequence, computed)) return 0;
  return SeatsOf(sequence) * cache_.FramesToReservePrivate(sequence.eviction->slots_max());
}

void Scheduler::ReserveSurvivors(const ScheduledSequence& run) {
  const Sequence& computed = At(run.sequence);
  if (computed.evicted > 0 || !Evicts(computed, run.first_position + run.tokens)) return;
  for (SequenceId id : plan_.samplers_of(run)) {
    Sequence& sequence = At(id);
    std::optional<kv::Lease> lease =
        cache_.ReservePrivate(sequence.eviction->budget, sequence.eviction->slots_max());
    QUIRE_CHECK(lease.has_value());  // the run was only planned with room for it
    sequence.survivors = *std::move(lease);
  }
}

void Scheduler::PlanEvictions() {
  for (SequenceId id : plan_.samplers) {
    const Sequence& sequence = At(id);
    if (sequence.state != SequenceState::kRunning) continue;
    if (!Evicts(sequence, sequence.computed())) continue;
    evictions_.push_back({id, sequence.lease.committed(), sequence.eviction->budget});
  }
}

void Scheduler::EvictionsDone() {
  for (const PendingEviction& eviction : evictions_) {
    Sequence& sequence = At(eviction.sequence);
    if (sequence.survivors.held()) {
      cache_.CommitPrivate(sequence.survivors, eviction.kept);
      sequence.lease = std::exchange(sequence.survivors, kv::Lease());
    } else {
      cache_.Shrink(sequence.lease, eviction.kept);
    }
    sequence.evicted += eviction.slots - eviction.kept;
    ++counters_.evictions;
    counters_.evicted_tokens += eviction.slots - eviction.kept;
  }
  evictions_.clear();
}

}  // namespace quire::sched
