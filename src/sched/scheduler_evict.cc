// Scheduler: sequences that keep only some of their tokens.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

namespace {

kv::EvictionRule RuleFor(const kv::EvictionOptions& eviction, size_t prompt_tokens,
                         const SchedulerOptions& options, const kv::KvCacheOptions& cache) {
  return kv::RuleFor(eviction, static_cast<int>(prompt_tokens),
                     {.residual_tokens = cache.residual_tokens, .sinks = options.sink_tokens});
}

Status CheckLength(const kv::EvictionRule& rule, int max_model_len) {
  if (rule.slots_max() <= max_model_len) return Ok{};
  return MakeError(
      ErrorKind::kUsage,
      "what an evicting sequence keeps, {} tokens, needs room for {}, and {} are there "
      "(max_model_len); lower the budget, keep fewer first and recent tokens, or take "
      "a codec with a shorter residual",
      rule.budget, rule.slots_max(), max_model_len);
}

}  // namespace

Status Scheduler::ValidateEviction(const kv::EvictionOptions& eviction,
                                   const SchedulerOptions& options,
                                   const kv::KvCacheOptions& cache_options) {
  if (!eviction.evicts()) return Ok{};
  QUIRE_RETURN_IF_ERROR(kv::ValidateEviction(eviction));
  if (std::ranges::any_of(cache_options.groups,
                          [](const auto& group) { return group.window_tokens.has_value(); })) {
    return MakeError(ErrorKind::kUsage,
                     "this model's sliding windows give tokens up already; the eviction policy {} "
                     "is for models without them: use none",
                     kv::NameOf(eviction.policy));
  }
  // A share of a prompt is at least what is always kept.
  return CheckLength(RuleFor(eviction, 0, options, cache_options), options.max_model_len);
}

kv::EvictionRule Scheduler::RuleOf(const Request& request) const {
  return RuleFor(request.eviction, request.prompt.size(), options_, cache_.options());
}

Status Scheduler::CheckEviction(const Request& request) const {
  if (!request.eviction.evicts()) return Ok{};
  QUIRE_RETURN_IF_ERROR(ValidateEviction(request.eviction, options_, cache_.options()));
  if (request.beam_search) {
    return MakeError(ErrorKind::kUsage,
                     "beam search and the eviction policy {} do not go together; leave one out",
                     kv::NameOf(request.eviction.policy));
  }
  const kv::EvictionRule rule = RuleOf(request);
  // The last token drawn is not computed.
  const int64_t longest = static_cast<int64_t>(request.prompt.size()) + MaxTokensOf(request) - 1;
  if (longest <= rule.budget) return Ok{};  // it evicts nothing
  QUIRE_RETURN_IF_ERROR(CheckLength(rule, options_.max_model_len));
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

bool Scheduler::EndsInEviction(const ScheduledSequence& run) const {
  return run.samples() && Evicts(sequence(run.sequence), run.first_position + run.tokens);
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
  if (computed.evicted > 0 || !EndsInEviction(run)) return;
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
