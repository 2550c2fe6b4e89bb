// Scheduler: which sequences compute how many tokens in the next step, and who holds KV memory.
//
// Owns the KvCache, the requests and their sequences. One thread calls it. The engine's loop:
//
//     const StepPlan& plan = scheduler.Schedule();
//     ... execute plan.copies, forward pass, sampling ...
//     scheduler.Commit(outputs);             // one output for every sequence of plan.samplers
//     ... move what scheduler.evictions() keep; scheduler.EvictionsDone() ...
//     ... text; scheduler.Finish(sequence, FinishReason::kStop) where a stop string matched ...
//
// Who ends a sequence: the scheduler for token ids (end of text, stop_token_ids, after min_tokens)
// and for lengths (max_tokens, max_model_len); the engine, which knows the text, through Finish.
//
// Policy
//  - A step has a budget of max_num_batched_tokens: decodes first, then prefill chunks of running
//    sequences, then admissions, each by priority and arrival; drafts get what is left.
//  - Drafts are a favour: they are shortened to the budget and the memory that is left when
//    everybody has been planned, and nobody is preempted, stalled or kept out for them.
//  - Admission: by priority; among equals preempted requests first, then requests overtaken
//    max_overtakes times, then the longest cached prefix, then arrival. A request is admitted when
//    its whole prompt fits the memory that is neither promised to running prefills nor left to
//    running answers to grow into. If the first in that order does not fit, nobody passes it.
//  - A request whose uncached prefix is being computed by a running one waits for it.
//  - A sequence that evicts (Request::eviction) keeps its whole prompt until that is computed, then
//    the rule's budget. Room for what it keeps is taken before the step that ends in its first
//    eviction; from then on its memory is its own and bounded, and nobody preempts it: what it
//    forgot cannot be computed again.
//  - Memory runs out: the running sequence of lowest priority, newest first, whose release frees
//    frames is preempted; it computes its tokens again later. Nobody is preempted for a sequence of
//    lower rank: that one stalls for the step.
//
// What always holds
//  - Fairness: of the requests that arrived later with the same priority, at most max_overtakes are
//    admitted before a request (counted per request, n sequences as one). Requests of higher
//    priority may always pass.
//  - No frame is freed while a running step refers to it: Cancel and Finish during a step take
//    effect in Commit, and in between steps at once.
//  - When all requests have finished, no frame is leased.
//  - Scheduling is a function of the calls made: a recorded run replays.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/kv_cache.h"
#include "sched/beam_search.h"
#include "sched/request.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"

namespace quire::sched {

struct SchedulerOptions {
  int max_num_seqs = 256;
  int max_num_batched_tokens = 2048;
  int max_model_len = 4096;
  int max_waiting = 1 << 16;  // requests; more are refused
  int max_overtakes = 64;     // the fairness bound
  std::vector<TokenId> eos_ids;
  int sink_tokens = 0;  // first tokens of a sequence that the cache keeps in frames of their own
};

// Plain counters since the start, and the present queue lengths.
struct SchedulerStats {
  int requests_waiting = 0;
  int requests_running = 0;
  int sequences_waiting = 0;  // never admitted, preempted
  int sequences_running = 0;
  int64_t requests_submitted = 0;
  int64_t requests_refused = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t steps = 0;
  int64_t steps_mixed = 0;  // prefill and decode together
  int64_t decode_tokens = 0;
  int64_t prefill_tokens = 0;
  int64_t draft_tokens = 0;           // computed
  int64_t draft_tokens_accepted = 0;  // of these, that became part of their sequence
  int64_t recomputed_tokens = 0;      // computed again after a preemption; never hits
  int64_t prompt_tokens_queried = 0;  // prompt tokens looked up at first admission
  int64_t prompt_tokens_hit = 0;      // of these, found in the cache
  int64_t preemptions = 0;
  int64_t stalls = 0;          // a running sequence found no frame and nobody to preempt
  int64_t prefix_waits = 0;    // requests that waited for another to compute a shared prefix
  int64_t evictions = 0;       // of one sequence at the end of one step
  int64_t evicted_tokens = 0;  // slots given up by them
  int overtakes_max = 0;       // most later equals admitted before a request so far
};

// A request with its sequences; readable until the Schedule() after it has finished.
struct RequestState {
  RequestId id;
  Request request;
  std::vector<SequenceId> sequences;  // [request.sequences()]
  uint64_t arrival = 0;               // order of submission
  int overtaken = 0;
  bool finished = false;
  bool cancelled = false;

  std::unique_ptr<BeamSearch> beams;       // beam search only; its hypotheses are the result
  std::vector<SequenceId> beam_sequences;  // the running beams, in BeamSearch's order

  // Scheduler's own, for the waiting queue.
  bool admitted_before = false;
  int cached_tokens = 0;  // last known cached prefix
  // The request computing a prefix this one waits for, and that prefix's length.
  std::optional<SequenceId> prefix_from;
  uint64_t prefix_from_arrival = 0;
  int prefix_tokens = 0;
  bool waited_for_prefix = false;
};

class Scheduler {
 public:
  // kUsage where a combination cannot work, with needed and available sizes: among others a
  // max_model_len that the KV memory does not hold (cache_options.max_lease_tokens and max_leases
  // are set by the scheduler itself).
  static Status Validate(const SchedulerOptions& options, const kv::KvCacheOptions& cache_options);
  // Whether sequences can give up tokens as `eviction` says; kUsage where they cannot.
  static Status ValidateEviction(const kv::EvictionOptions& eviction,
                                 const SchedulerOptions& options,
                                 const kv::KvCacheOptions& cache_options);
  // Options must be valid.
  Scheduler(SchedulerOptions options, kv::KvCacheOptions cache_options);

  // Queues a request. kUsage: it cannot be served as asked (too long, n too large, ...), with limit
  // and counts; kExhausted: the queue is full.
  Result<RequestId> Submit(Request request);

  // Ends the request's unfinished sequences with kCancelled. Unknown or finished ids are ignored.
  void Cancel(RequestId request);

  // Ends one sequence (the engine matched a stop string, or cannot go on: kError).
  void Finish(SequenceId sequence, FinishReason reason);

  // Between steps: takes the memory of all running sequences, which compute their tokens again
  // later. An answer never shows it.
  void PreemptAll();

  // Between steps: forgets every cached prefix that no running sequence holds.
  void DropCachedPrefixes() { cache_.DropCached(); }

  // Between steps: the most drafts that the next step could compute of a sequence, memory and
  // budget aside; 0 where it does not decode.
  int DraftsMax(SequenceId sequence) const;
  // Between steps: guesses what follows the sequence's tokens, at most DraftsMax() of them.
  // Replaces what was proposed before; the next step that computes the sequence forgets them.
  void Propose(SequenceId sequence, std::span<const TokenId> drafts);

  // Whether a sequence of `request` whose newest output token is `token`, the `output_tokens`th,
  // ends with it: by an ending token or by length.
  std::optional<FinishReason> EndWith(const Request& request, TokenId token,
                                      int output_tokens) const;

  // Drops requests that have finished and plans the next step. The plan is valid until the next
  // call. An empty plan means that nothing is to be computed. Every plan that is not empty must be
  // committed before the next Schedule. `sitting_out`: running sequences that are not ready to
  // compute; they keep what they hold.
  const StepPlan& Schedule(std::span<const SequenceId> sitting_out = {});

  // The step planned last has been executed. `outputs`: one for every sequence of plan.samplers
  // that has not been cancelled or finished meanwhile; others are ignored. Afterwards
  // sequence(id).finish_reason says who ended.
  void Commit(std::span<const SequenceOutput> outputs);

  // What Commit left to be moved; EvictionsDone must follow before anything else is called, where
  // it is not empty.
  std::span<const PendingEviction> evictions() const { return evictions_; }
  void EvictionsDone();

  // Whether the sequence of a run of the plan has more slots than it may keep after it.
  bool EndsInEviction(const ScheduledSequence& run) const;

  const StepPlan& plan() const { return plan_; }
  bool idle() const;  // no request waits or runs

  const Sequence& sequence(SequenceId id) const;
  const RequestState& request(RequestId id) const;
  // Requests that have finished since the last Schedule, in order.
  std::span<const RequestId> finished() const { return finished_; }
  // Sequences that wait for admission: one per new request, and each preempted one.
  std::span<const SequenceId> waiting() const { return waiting_; }
  // Sequences holding a lease.
  std::span<const SequenceId> running() const { return running_; }

  const SchedulerOptions& options() const { return options_; }
  const kv::KvCache& cache() const { return cache_; }
  SchedulerStats stats() const;

  // Recounts queues, states and the cache from scratch; aborts on a difference.
  void CheckInvariants() const;

 private:
  // A place in the order of admission; smaller goes first.
  enum Urgency { kResuming, kOvertaken, kPatient };
  struct Candidate {
    int priority = 0;
    int urgency = kPatient;
    int cached_tokens = 0;
    uint64_t arrival = 0;
    int index = 0;
    SequenceId sequence;
  };
  static bool GoesLater(const Candidate& a, const Candidate& b);

  Sequence& At(SequenceId id) { return *sequences_[id.value]; }
  RequestState& At(RequestId id) { return *requests_[id.value]; }
  RequestState& RequestOf(const Sequence& sequence) { return At(sequence.request); }
  const RequestState& RequestOf(const Sequence& sequence) const {
    return *requests_[sequence.request.value];
  }
  kv::CacheKey KeyOf(const Request& request) const { return {request.cache_salt, request.adapter}; }
  int MaxTokensOf(const Request& request) const;
  int SeatsOf(const Sequence& sequence) const;
  bool RanksBefore(SequenceId a, SequenceId b) const;

  // scheduler_evict.cc
  Status CheckEviction(const Request& request) const;
  kv::EvictionRule RuleOf(const Request& request) const;
  bool Evicts(const Sequence& sequence, int computed) const;
  int FramesForSurvivors(const Sequence& sequence, int computed) const;
  void ReserveSurvivors(const ScheduledSequence& run);
  void PlanEvictions();

  // scheduler.cc
  Status CheckRequest(const Request& request) const;
  SequenceId NewSequence(const RequestState& request, int index);
  void DropFinished();
  void EndSequence(Sequence& sequence, FinishReason reason);
  void HandOver(Sequence& sequence);
  void EndRequestIfDone(RequestState& request);
  void InsertRunning(SequenceId id);

  // scheduler_plan.cc
  void PlanRunning(std::span<const SequenceId> sitting_out);
  void PlanRun(Sequence& sequence);
  bool MakeRoom(const Sequence& sequence, int tokens);
  int MostTokens(const Sequence& sequence, int wanted) const;
  bool PreemptFor(const Sequence& sequence);
  void Preempt(size_t place);
  std::span<const kv::Lease* const> LeasesBehind(size_t place);
  void AddRun(Sequence& sequence, int tokens);
  void PlanDrafts();

  // admission.cc
  void Admit();
  void AdaptHeadroom();
  int GrowthExpected() const;
  void BuildOrder();
  void RefreshCachedTokens();
  Candidate CandidateOf(const Sequence& sequence) const;
  bool AwaitsPrefix(Sequence& sequence);
  static int TokensToLookUp(const Sequence& sequence);
  kv::PrefixMatch MatchOf(const Sequence& sequence) const;
  bool TryAdmit(Sequence& sequence);
  std::optional<kv::Lease> ReserveFirstChunk(const Sequence& sequence, kv::PrefixMatch& match);
  int FramesPromised() const;
  bool ReleaseIdleBeam();
  void Admitted(Sequence& sequence, const kv::PrefixMatch& match);
  void CountOvertakes(const RequestState& admitted);

  // scheduler_commit.cc
  void CommitRuns();
  void ForkSiblings(const ScheduledSequence& run);
  void ApplyOutput(const SequenceOutput& output);
  void AppendTokens(Sequence& sequence, std::span<const TokenId> tokens);
  void CommitDrafts(const ScheduledSequence& run);
  void EndAll(RequestState& request, FinishReason reason);
  void AdvanceBeams(RequestState& request);
  void PlaceSurvivors(RequestState& request, std::span<const BeamSearch::Survivor> survivors);
  void ForkBeam(const Sequence& parent, Sequence& beam);
  int SeatsTaken() const;
  void ReleaseEnded();

  SchedulerOptions options_;
  kv::KvCache cache_;
  std::vector<std::unique_ptr<RequestState>> requests_;  // by id; null: unused
  std::vector<std::unique_ptr<Sequence>> sequences_;     // by id; null: unused
  std::vector<RequestId> free_request_ids_;
  std::vector<SequenceId> free_sequence_ids_;

  std::vector<SequenceId> waiting_;  // by arrival of their becoming so
  std::vector<SequenceId> running_;  // by priority, then arrival, then index
  std::vector<RequestId> finished_;
  int requests_waiting_new_ = 0;  // never admitted
  uint64_t arrivals_ = 0;

  StepPlan plan_;
  bool in_step_ = false;  // a plan has been handed out and not committed
  int prefill_budget_ = 0;
  double output_tokens_mean_ = 0.0;  // of sequences that ended lately
  int headroom_ = 0;                 // frames an admission must leave
  int seats_taken_ = 0;              // running sequences and the siblings that will fork from them
  bool short_of_memory_ = false;     // this step preempted or stalled
  std::vector<ScheduledSequence> prefill_runs_;
  std::vector<SequenceId> prefilling_;
  std::vector<Candidate> order_;
  size_t planning_place_ = 0;  // in running_, while running sequences are planned
  std::vector<SequenceId> ended_in_step_;
  std::vector<PendingEviction> evictions_;
  std::vector<const kv::Lease*> leases_scratch_;
  std::vector<BeamSearch::Beam> beams_scratch_;
  size_t refresh_next_ = 0;
  SchedulerStats counters_;
};

}  // namespace quire::sched
