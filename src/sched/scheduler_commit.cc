// Scheduler::Commit: what a completed step means for sequences, leases and beams.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {

void Scheduler::Commit(std::span<const SequenceOutput> outputs) {
  QUIRE_CHECK(in_step_);
  cache_.CopiesDone();
  CommitRuns();
  for (const SequenceOutput& output : outputs) ApplyOutput(output);
  for (const ScheduledSequence& run : plan_.sequences) {
    if (run.drafts > 0) CommitDrafts(run);
  }
  for (SequenceId id : plan_.samplers) {
    Sequence& sequence = At(id);
    QUIRE_CHECK(sequence.finish_reason || sequence.awaits_siblings() || sequence.uncomputed() == 1);
  }
  for (const ScheduledSequence& run : plan_.sequences) {
    RequestState& request = RequestOf(At(run.sequence));
    if (request.beams) AdvanceBeams(request);
  }
  ReleaseEnded();
  PlanEvictions();
}

void Scheduler::CommitRuns() {
  for (const ScheduledSequence& run : plan_.sequences) {
    Sequence& sequence = At(run.sequence);
    const int computed = run.first_position + run.tokens - run.drafts;
    const std::span<const TokenId> tokens = sequence.tokens;
    if (cache_.is_private(sequence.lease)) {
      cache_.CommitPrivate(sequence.lease, computed - sequence.evicted);
    } else {
      cache_.Commit(sequence.lease, tokens.first(computed));
    }
    sequence.tokens_computed_max = std::max(sequence.tokens_computed_max, computed);
    sequence.prompt_logits_done =
        std::max(sequence.prompt_logits_done, std::min(computed, sequence.prompt_tokens));
    if (run.drafts == 0) sequence.drafts.clear();
    if (run.samples()) ForkSiblings(run);
    const bool ends_here = RequestOf(sequence).request.sampling.max_tokens == 0;
    if (ends_here && sequence.uncomputed() == 0) EndAll(RequestOf(sequence), FinishReason::kLength);
  }
}

// The prompt of a request with n > 1 is computed: the siblings share it from here on.
void Scheduler::ForkSiblings(const ScheduledSequence& run) {
  const Sequence& first = At(run.sequence);
  for (SequenceId id : plan_.samplers_of(run)) {
    Sequence& sibling = At(id);
    if (id == first.id || sibling.finish_reason) continue;
    sibling.tokens.reserve(first.tokens.capacity());
    sibling.tokens.assign(first.tokens.begin(), first.tokens.end());
    std::optional<kv::Lease> lease = cache_.Fork(first.lease);
    QUIRE_CHECK(lease.has_value());  // its seat was taken when the first one was admitted
    sibling.lease = *std::move(lease);
    sibling.cached_tokens = first.cached_tokens;
    sibling.tokens_computed_max = first.tokens_computed_max;
    sibling.prompt_logits_done = first.prompt_logits_done;
    sibling.state = SequenceState::kRunning;
    InsertRunning(id);
  }
}

void Scheduler::ApplyOutput(const SequenceOutput& output) {
  Sequence& sequence = At(output.sequence);
  if (sequence.finish_reason) return;
  if (RequestOf(sequence).beams) {
    QUIRE_CHECK(!output.candidates.empty());
    sequence.candidates.assign(output.candidates.begin(), output.candidates.end());
  } else {
    QUIRE_CHECK(!output.tokens.empty());
    AppendTokens(sequence, output.tokens);
  }
}

std::optional<FinishReason> Scheduler::EndWith(const Request& request, TokenId token,
                                               int output_tokens) const {
  const SamplingParams& sampling = request.sampling;
  const auto is_among = [token](const std::vector<TokenId>& ids) {
    return std::ranges::find(ids, token) != ids.end();
  };
  const bool ends =
      is_among(sampling.stop_token_ids) || (!sampling.ignore_eos && is_among(options_.eos_ids));
  if (ends && output_tokens > sampling.min_tokens) return FinishReason::kStop;
  if (output_tokens >= MaxTokensOf(request)) return FinishReason::kLength;
  return std::nullopt;
}

void Scheduler::AppendTokens(Sequence& sequence, std::span<const TokenId> tokens) {
  const Request& request = RequestOf(sequence).request;
  for (TokenId token : tokens) {
    sequence.tokens.push_back(token);
    const auto end = EndWith(request, token, sequence.output_tokens());
    if (end) return EndSequence(sequence, *end);
  }
}

// The drafts that became part of the sequence are computed; what the step took for the others is
// free again. Of a sequence that ended meanwhile none is kept.
void Scheduler::CommitDrafts(const ScheduledSequence& run) {
  Sequence& sequence = At(run.sequence);
  const std::span<const TokenId> tokens = sequence.tokens;
  const int certain = run.first_position + 1;
  // The last token was drawn and never computed, even where it equals a draft.
  const int computed = std::max(certain, static_cast<int>(tokens.size()) - 1);
  const std::span<const TokenId> drafts = std::span(sequence.drafts).first(run.drafts);
  const auto accepted = std::ranges::mismatch(tokens.subspan(certain), drafts).in2 - drafts.begin();
  QUIRE_CHECK_LE(computed - certain, accepted);
  cache_.Commit(sequence.lease, tokens.first(computed));
  cache_.Truncate(sequence.lease, computed);
  sequence.tokens_computed_max = std::max(sequence.tokens_computed_max, computed);
  sequence.drafts.clear();
  counters_.draft_tokens_accepted += accepted;
}

void Scheduler::EndAll(RequestState& request, FinishReason reason) {
  for (auto it = request.sequences.rbegin(); it != request.sequences.rend(); ++it) {
    EndSequence(At(*it), reason);
  }
}

// Extends the beams by one token once all of them have their continuations.
void Scheduler::AdvanceBeams(RequestState& request) {
  if (request.beams->done()) return;
  beams_scratch_.clear();
  for (SequenceId id : request.beam_sequences) {
    const Sequence& beam = At(id);
    if (!beam.awaits_siblings()) return;
    beams_scratch_.push_back({.output = beam.output(), .candidates = beam.candidates});
  }
  const auto survivors = request.beams->Advance(beams_scratch_);
  if (request.beams->done()) return EndAll(request, FinishReason::kStop);
  PlaceSurvivors(request, survivors);
}

// A beam with several survivors goes on in its own sequence with the first of them; the others fork
// from it into sequences whose beams were dropped, or that were not in use yet.
void Scheduler::PlaceSurvivors(RequestState& request,
                               std::span<const BeamSearch::Survivor> survivors) {
  const std::vector<SequenceId> parents = request.beam_sequences;
  std::vector<bool> continued(parents.size(), false);
  for (const auto& survivor : survivors) continued[survivor.parent] = true;
  std::vector<SequenceId> unused;
  for (SequenceId id : request.sequences) {
    const auto parent = std::ranges::find(parents, id);
    if (parent != parents.end() && continued[parent - parents.begin()]) continue;
    Sequence& sequence = At(id);
    std::erase(running_, id);
    std::erase(waiting_, id);
    sequence.lease = kv::Lease();
    sequence.candidates.clear();
    sequence.state = SequenceState::kUnforked;
    unused.push_back(id);
  }
  request.beam_sequences.clear();
  std::vector<bool> placed(parents.size(), false);
  for (const auto& survivor : survivors) {
    const SequenceId parent_id = parents[survivor.parent];
    if (!placed[survivor.parent]) {
      placed[survivor.parent] = true;
      request.beam_sequences.push_back(parent_id);
      continue;
    }
    const SequenceId id = unused.back();
    unused.pop_back();
    ForkBeam(At(parent_id), At(id));
    request.beam_sequences.push_back(id);
  }
  for (size_t i = 0; i < survivors.size(); ++i) {
    Sequence& beam = At(request.beam_sequences[i]);
    beam.candidates.clear();
    beam.tokens.push_back(survivors[i].token);
  }
}

void Scheduler::ForkBeam(const Sequence& parent, Sequence& beam) {
  beam.tokens.assign(parent.tokens.begin(), parent.tokens.end());
  beam.cached_tokens = parent.cached_tokens;
  beam.tokens_computed_max = parent.tokens_computed_max;
  beam.prompt_logits_done = parent.prompt_logits_done;
  if (parent.lease.held() && SeatsTaken() < options_.max_num_seqs) {
    std::optional<kv::Lease> lease = cache_.Fork(parent.lease);
    QUIRE_CHECK(lease.has_value());
    beam.lease = *std::move(lease);
    beam.state = SequenceState::kRunning;
    InsertRunning(beam.id);
  } else {
    beam.preemptions = parent.preemptions;
    beam.state = SequenceState::kWaiting;
    waiting_.push_back(beam.id);
  }
}

// Cancelled during the step, or ended by it: nothing refers to their frames any more.
void Scheduler::ReleaseEnded() {
  in_step_ = false;
  for (SequenceId id : ended_in_step_) {
    Sequence& sequence = At(id);
    EndSequence(sequence, *std::exchange(sequence.finish_reason, std::nullopt));
  }
  ended_in_step_.clear();
}

}  // namespace quire::sched
