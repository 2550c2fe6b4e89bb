#include "sched/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace quire::sched {
namespace {

kv::KvCacheOptions CacheOptions(const SchedulerOptions& options, kv::KvCacheOptions cache) {
  cache.max_leases = 2 * options.max_num_seqs;  // what a sequence keeps is moved to another lease
  cache.max_lease_tokens = options.max_model_len;
  return cache;
}

constexpr size_t kMaxSaltBytes = 1024;
constexpr double kOutputsRemembered = 64.0;
constexpr int kPositionsMax = 1 << 30;

}  // namespace

Status Scheduler::Validate(const SchedulerOptions& options,
                           const kv::KvCacheOptions& cache_options) {
  const auto at_least = [](const char* flag, int value, int least) -> Status {
    if (value >= least) return Ok{};
    return MakeError(ErrorKind::kUsage, "{} is {}; at least {} is needed", flag, value, least);
  };
  QUIRE_RETURN_IF_ERROR(at_least("--max-num-seqs", options.max_num_seqs, 1));
  QUIRE_RETURN_IF_ERROR(at_least("--max-model-len", options.max_model_len, 2));
  QUIRE_RETURN_IF_ERROR(at_least("the length of the queue", options.max_waiting, 1));
  QUIRE_RETURN_IF_ERROR(at_least("the bound of overtaking", options.max_overtakes, 0));
  if (options.max_num_batched_tokens < options.max_num_seqs) {
    return MakeError(ErrorKind::kUsage,
                     "max_num_batched_tokens {} is below max_num_seqs {}: a step could not decode "
                     "every running sequence; raise the one or lower the other",
                     options.max_num_batched_tokens, options.max_num_seqs);
  }
  const kv::KvCacheOptions cache = CacheOptions(options, cache_options);
  QUIRE_RETURN_IF_ERROR(kv::KvCache::Validate(cache));
  const int needed = kv::KvCache::FramesForSequence(cache, options.max_model_len, 1);
  if (needed > cache.frames) {
    return MakeError(ErrorKind::kUsage,
                     "max_model_len {} needs {} KV frames and {} are available; the longest length "
                     "that fits is {}: lower max_model_len or give the KV cache more memory",
                     options.max_model_len, needed, cache.frames,
                     kv::KvCache::MaxSequenceTokens(cache, 1));
  }
  return Ok{};
}

Scheduler::Scheduler(SchedulerOptions options, kv::KvCacheOptions cache_options)
    : options_(std::move(options)), cache_(CacheOptions(options_, std::move(cache_options))) {
  const Status valid = Validate(options_, cache_.options());
  QUIRE_CHECK(valid.ok());
  const size_t seqs = options_.max_num_seqs;
  running_.reserve(seqs);
  plan_.sequences.reserve(seqs);
  plan_.samplers.reserve(seqs);
  plan_.admitted.reserve(seqs);
  plan_.preempted.reserve(seqs);
  prefill_runs_.reserve(seqs);
  prefilling_.reserve(seqs);
}

int Scheduler::MaxTokensOf(const Request& request) const {
  // The only policy whose distances do not grow with the text.
  if (request.eviction.policy == kv::EvictionPolicy::kStreaming) {
    return std::min(request.sampling.max_tokens, kPositionsMax);
  }
  return std::min(request.sampling.max_tokens,
                  options_.max_model_len - static_cast<int>(request.prompt.size()));
}

// Seats that `sequence` takes: its own, and those of the siblings that will fork from it.
int Scheduler::SeatsOf(const Sequence& sequence) const {
  const RequestState& request = RequestOf(sequence);
  int seats = 1;
  if (request.beams) return seats;  // a beam without a seat is computed later
  for (SequenceId id : request.sequences) {
    seats += sequences_[id.value]->state == SequenceState::kUnforked;
  }
  return seats;
}

int Scheduler::SeatsTaken() const {
  int seats = 0;
  for (SequenceId id : running_) seats += SeatsOf(sequence(id));
  return seats;
}

bool Scheduler::RanksBefore(SequenceId a, SequenceId b) const {
  const Sequence& x = sequence(a);
  const Sequence& y = sequence(b);
  const RequestState& p = RequestOf(x);
  const RequestState& q = RequestOf(y);
  return std::tuple(p.request.priority, p.arrival, x.index) <
         std::tuple(q.request.priority, q.arrival, y.index);
}

Status Scheduler::CheckRequest(const Request& request) const {
  const SamplingParams& sampling = request.sampling;
  const auto prompt_tokens = request.prompt.size();
  if (prompt_tokens == 0) return MakeError(ErrorKind::kUsage, "the prompt is empty");
  if (prompt_tokens >= static_cast<size_t>(options_.max_model_len)) {
    return MakeError(
        ErrorKind::kUsage,
        "the prompt has {} tokens and needs room for one more; {} tokens are available "
        "(max_model_len): shorten the prompt",
        prompt_tokens, options_.max_model_len);
  }
  if (sampling.max_tokens < 0 || (sampling.max_tokens == 0 && !sampling.prompt_logprobs)) {
    return MakeError(ErrorKind::kUsage, "max_tokens is {}; at least 1 is needed",
                     sampling.max_tokens);
  }
  if (request.n < 1 || request.sequences() < request.n) {
    return MakeError(ErrorKind::kUsage, "n is {} and best_of {}; 1 <= n <= best_of is needed",
                     request.n, request.sequences());
  }
  if (request.sequences() > options_.max_num_seqs) {
    return MakeError(ErrorKind::kUsage,
                     "the request asks for {} sequences; at most {} run together (max_num_seqs)",
                     request.sequences(), options_.max_num_seqs);
  }
  if (request.cache_salt.size() > kMaxSaltBytes) {
    return MakeError(ErrorKind::kUsage, "cache_salt has {} bytes; at most {} are allowed",
                     request.cache_salt.size(), kMaxSaltBytes);
  }
  return CheckEviction(request);
}

SequenceId Scheduler::NewSequence(const RequestState& request, int index) {
  if (free_sequence_ids_.empty()) {
    free_sequence_ids_.push_back(SequenceId{static_cast<int32_t>(sequences_.size())});
    sequences_.emplace_back();
  }
  const SequenceId id = free_sequence_ids_.back();
  free_sequence_ids_.pop_back();
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->request = request.id;
  sequence->index = index;
  sequence->prompt_tokens = static_cast<int>(request.request.prompt.size());
  sequence->state = index == 0 ? SequenceState::kWaiting : SequenceState::kUnforked;
  if (index == 0) sequence->tokens = request.request.prompt;
  if (request.request.eviction.evicts()) sequence->eviction = RuleOf(request.request);
  sequences_[id.value] = std::move(sequence);
  return id;
}

Result<RequestId> Scheduler::Submit(Request request) {
  Status valid = CheckRequest(request);
  if (valid.ok() && requests_waiting_new_ >= options_.max_waiting) {
    valid = MakeError(ErrorKind::kExhausted, "{} requests wait already, the limit; try again later",
                      requests_waiting_new_);
  }
  if (!valid.ok()) {
    ++counters_.requests_refused;
    return std::move(valid).error();
  }
  if (free_request_ids_.empty()) {
    free_request_ids_.push_back(RequestId{static_cast<int32_t>(requests_.size())});
    requests_.emplace_back();
  }
  const RequestId id = free_request_ids_.back();
  free_request_ids_.pop_back();
  requests_[id.value] = std::make_unique<RequestState>();
  RequestState& state = At(id);
  state.id = id;
  state.request = std::move(request);
  state.arrival = arrivals_++;
  for (int i = 0; i < state.request.sequences(); ++i) {
    state.sequences.push_back(NewSequence(state, i));
  }
  if (state.request.beam_search) {
    const SamplingParams& sampling = state.request.sampling;
    state.beams = std::make_unique<BeamSearch>(
        BeamSearch::Options{.params = *state.request.beam_search,
                            .width = state.request.sequences(),
                            .max_tokens = MaxTokensOf(state.request),
                            .min_tokens = sampling.min_tokens,
                            .end_ids = EndTokens(sampling, options_.eos_ids)});
    state.beam_sequences = {state.sequences[0]};
  }
  const Sequence& first = At(state.sequences[0]);
  state.cached_tokens = MatchOf(first).tokens;
  waiting_.push_back(first.id);
  ++requests_waiting_new_;
  ++counters_.requests_submitted;
  return id;
}

void Scheduler::InsertRunning(SequenceId id) {
  const auto place = std::ranges::upper_bound(
      running_, id, [&](SequenceId a, SequenceId b) { return RanksBefore(a, b); });
  running_.insert(place, id);
}

// The first of several siblings ends before the others have forked from it: the next takes its
// place.
void Scheduler::HandOver(Sequence& sequence) {
  const RequestState& request = RequestOf(sequence);
  const auto heir = std::ranges::find_if(request.sequences, [&](SequenceId id) {
    return At(id).state == SequenceState::kUnforked && !At(id).finish_reason;
  });
  if (heir == request.sequences.end() || request.beams) return;
  Sequence& next = At(*heir);
  next.tokens.assign(sequence.tokens.begin(), sequence.tokens.end());
  next.lease = std::move(sequence.lease);
  next.cached_tokens = sequence.cached_tokens;
  next.preemptions = sequence.preemptions;
  next.tokens_computed_max = sequence.tokens_computed_max;
  next.prompt_logits_done = sequence.prompt_logits_done;
  if (next.lease.held()) {
    next.state = SequenceState::kRunning;
    InsertRunning(next.id);
  } else {
    next.state = SequenceState::kWaiting;
    std::ranges::replace(waiting_, sequence.id, next.id);
  }
}

void Scheduler::EndSequence(Sequence& sequence, FinishReason reason) {
  if (sequence.finish_reason) return;
  sequence.finish_reason = reason;
  sequence.candidates.clear();
  if (in_step_) {  // Commit does the rest: the running step still refers to the frames
    ended_in_step_.push_back(sequence.id);
    return;
  }
  if (sequence.state == SequenceState::kWaiting || sequence.state == SequenceState::kRunning) {
    if (sequence.output_tokens() == 0) HandOver(sequence);
  }
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    output_tokens_mean_ += (sequence.output_tokens() - output_tokens_mean_) / kOutputsRemembered;
  }
  sequence.state = SequenceState::kFinished;
  sequence.drafts.clear();
  sequence.lease = kv::Lease();
  sequence.survivors = kv::Lease();
  std::erase(running_, sequence.id);
  std::erase(waiting_, sequence.id);
  EndRequestIfDone(RequestOf(sequence));
}

void Scheduler::EndRequestIfDone(RequestState& request) {
  if (request.finished) return;
  for (SequenceId id : request.sequences) {
    if (At(id).state != SequenceState::kFinished) return;
  }
  request.finished = true;
  if (!request.admitted_before) --requests_waiting_new_;
  finished_.push_back(request.id);
  ++counters_.requests_finished;
  if (request.cancelled) ++counters_.requests_cancelled;
}

void Scheduler::Cancel(RequestId id) {
  if (id.value < 0 || id.value >= static_cast<int>(requests_.size()) || !requests_[id.value])
    return;
  RequestState& request = At(id);
  if (request.finished || request.cancelled) return;
  request.cancelled = true;
  // Last first: nobody is left to take over what a sibling computes.
  for (auto it = request.sequences.rbegin(); it != request.sequences.rend(); ++it) {
    EndSequence(At(*it), FinishReason::kCancelled);
  }
}

void Scheduler::Finish(SequenceId id, FinishReason reason) {
  QUIRE_CHECK(id.value >= 0 && id.value < static_cast<int>(sequences_.size()));
  QUIRE_CHECK(sequences_[id.value] != nullptr);
  Sequence& sequence = At(id);
  const RequestState& request = RequestOf(sequence);
  if (!request.beams) return EndSequence(sequence, reason);
  // Beams have no life of their own.
  for (auto it = request.sequences.rbegin(); it != request.sequences.rend(); ++it) {
    EndSequence(At(*it), reason);
  }
}

void Scheduler::DropFinished() {
  for (RequestId id : finished_) {
    for (SequenceId sequence : At(id).sequences) {
      sequences_[sequence.value].reset();
      free_sequence_ids_.push_back(sequence);
    }
    requests_[id.value].reset();
    free_request_ids_.push_back(id);
  }
  finished_.clear();
}

bool Scheduler::idle() const {
  return waiting_.empty() && running_.empty();
}

const Sequence& Scheduler::sequence(SequenceId id) const {
  return *sequences_[id.value];
}

const RequestState& Scheduler::request(RequestId id) const {
  return *requests_[id.value];
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counters_;
  stats.requests_waiting = requests_waiting_new_;
  stats.sequences_running = static_cast<int>(running_.size());
  stats.sequences_waiting = static_cast<int>(waiting_.size());
  stats.requests_running = static_cast<int>(counters_.requests_submitted -
                                            counters_.requests_finished - requests_waiting_new_);
  return stats;
}

}  // namespace quire::sched
