// Scheduler::Schedule: who of those that wait gets memory and a seat.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "sched/scheduler.h"

namespace quire::sched {
namespace {

// Tokens of waiting prompts looked up anew per step: bounds the time of a step with a long queue.
constexpr int kRefreshTokens = 16384;
// Memory left by an admission for those who run to grow into, because running fewer sequences costs
// less than computing them twice: what they are expected to grow by, and at least a share of all
// that doubles with every step that preempts and falls off slowly in steps that do not.
constexpr int kHeadroomShareMin = 100;
constexpr int kHeadroomShareFirst = 16;
constexpr int kHeadroomDecaySteps = 256;

int CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

bool Scheduler::GoesLater(const Candidate& a, const Candidate& b) {
  const auto order = [](const Candidate& c) {
    // Among preempted and overtaken ones arrival alone decides.
    return std::tuple(c.priority, c.urgency, c.urgency == kPatient ? -c.cached_tokens : 0,
                      c.arrival, c.index);
  };
  return order(a) > order(b);
}

Scheduler::Candidate Scheduler::CandidateOf(const Sequence& sequence) const {
  const RequestState& request = RequestOf(sequence);
  int urgency = kPatient;
  if (request.overtaken >= options_.max_overtakes) urgency = kOvertaken;
  if (request.admitted_before) urgency = kResuming;
  return {.priority = request.request.priority,
          .urgency = urgency,
          .cached_tokens = request.cached_tokens,
          .arrival = request.arrival,
          .index = sequence.index,
          .sequence = sequence.id};
}

// Queries that score tokens must be computed, not found: for heavy hitters all of them.
int Scheduler::TokensToLookUp(const Sequence& sequence) {
  const int tokens = static_cast<int>(sequence.tokens.size());
  if (!sequence.eviction) return tokens;
  switch (sequence.eviction->policy) {
    case kv::EvictionPolicy::kH2o:
      return 1;
    case kv::EvictionPolicy::kSnapKv:
      return std::clamp(sequence.prompt_tokens - sequence.eviction->observed + 1, 1, tokens);
    default:
      return tokens;
  }
}

kv::PrefixMatch Scheduler::MatchOf(const Sequence& sequence) const {
  const Request& request = RequestOf(sequence).request;
  std::span<const TokenId> tokens = sequence.tokens;
  if (request.sampling.prompt_logprobs &&
      sequence.prompt_logits_done < sequence.prompt_tokens - 1) {
    // Rows whose logits are still owed must be computed, not found.
    tokens = tokens.first(sequence.prompt_logits_done + 1);
  }
  tokens = tokens.first(std::min<size_t>(tokens.size(), TokensToLookUp(sequence)));
  return cache_.Match(tokens, KeyOf(request));
}

void Scheduler::BuildOrder() {
  order_.clear();
  for (SequenceId id : waiting_) order_.push_back(CandidateOf(At(id)));
  std::ranges::make_heap(order_, GoesLater);
}

void Scheduler::RefreshCachedTokens() {
  int budget = kRefreshTokens;
  for (size_t seen = 0; seen < waiting_.size() && budget > 0; ++seen) {
    if (refresh_next_ >= waiting_.size()) refresh_next_ = 0;
    const Sequence& sequence = At(waiting_[refresh_next_++]);
    budget -= static_cast<int>(sequence.tokens.size());
    At(sequence.request).cached_tokens = MatchOf(sequence).tokens;
  }
}

void Scheduler::AdaptHeadroom() {
  const int frames = cache_.options().frames;
  if (plan_.preempted.empty()) {
    const int decay = (headroom_ + kHeadroomDecaySteps - 1) / kHeadroomDecaySteps;
    headroom_ = std::max(frames / kHeadroomShareMin, headroom_ - decay);
  } else {
    headroom_ = std::min(frames / 2, std::max(2 * headroom_, frames / kHeadroomShareFirst));
  }
}

// Frames that running sequences may still take to hold their answers. An answer is expected to be
// as long as answers were lately, and one that is longer to go on for half as long again.
int Scheduler::GrowthExpected() const {
  const auto& groups = cache_.options().groups;
  const auto growing = std::ranges::count_if(
      groups, [](const kv::LayerGroup& group) { return !group.window_tokens; });
  double tokens = 0.0;
  double frames = 0.0;
  for (SequenceId id : running_) {
    const Sequence& running = sequence(id);
    if (cache_.is_private(running.lease)) continue;  // its growth is pledged to it
    const double produced = running.output_tokens();
    const double most = MaxTokensOf(RequestOf(running).request) - produced;
    const double more =
        std::clamp(std::max(output_tokens_mean_ - produced, produced / 2), 0.0, most);
    tokens += more;
    // A tail grows and shrinks on the way: what counts is the most that is held at once.
    if (cache_.options().residual_tokens > 0) {
      const int length = static_cast<int>(running.tokens.size() + static_cast<size_t>(more));
      frames += cache_.FramesToFinish(running.lease, length, 1);
    }
  }
  if (cache_.options().residual_tokens == 0) {
    frames = tokens * static_cast<double>(growing) / cache_.block_tokens();
  }
  return static_cast<int>(std::min(frames, cache_.options().frames / 2.0));
}

void Scheduler::Admit() {
  if (waiting_.empty() || prefill_budget_ == 0) return;
  // Beams that have nothing to do until their siblings catch up must not keep those out.
  while (plan_.tokens() == 0 && seats_taken_ >= options_.max_num_seqs && ReleaseIdleBeam())
    continue;
  if (seats_taken_ >= options_.max_num_seqs) return;
  RefreshCachedTokens();
  BuildOrder();
  while (!order_.empty() && prefill_budget_ > 0) {
    std::ranges::pop_heap(order_, GoesLater);
    Sequence& sequence = At(order_.back().sequence);
    order_.pop_back();
    if (sequence.awaits_siblings()) continue;
    if (AwaitsPrefix(sequence)) continue;
    while (seats_taken_ + SeatsOf(sequence) > options_.max_num_seqs) {
      if (plan_.tokens() > 0 || !ReleaseIdleBeam()) return;
    }
    if (!TryAdmit(sequence)) return;
  }
}

// Whether a running request is computing more of this one's prefix than is cached.
bool Scheduler::AwaitsPrefix(Sequence& sequence) {
  RequestState& request = RequestOf(sequence);
  if (cache_.options().prefix_caching == kv::PrefixCaching::kOff) return false;
  if (request.overtaken >= options_.max_overtakes || request.admitted_before) return false;
  if (request.request.sampling.prompt_logprobs) return false;
  if (request.prefix_from) {
    const auto& from = sequences_[request.prefix_from->value];
    if (from && from->state == SequenceState::kRunning &&
        RequestOf(*from).arrival == request.prefix_from_arrival &&
        from->computed() < request.prefix_tokens) {
      return true;
    }
    request.prefix_from.reset();
    request.cached_tokens = MatchOf(sequence).tokens;
  }
  const int limit = TokensToLookUp(sequence) - 1;
  if (limit < cache_.seal_tokens()) return false;
  for (SequenceId id : prefilling_) {
    const Sequence& from = At(id);
    const RequestState& other = RequestOf(from);
    if (from.state != SequenceState::kRunning || other.request.adapter != request.request.adapter ||
        other.request.cache_salt != request.request.cache_salt) {
      continue;
    }
    int common = std::min(limit, CommonPrefix(sequence.tokens, from.tokens));
    common -= common % cache_.seal_tokens();
    if (common <= std::max(request.cached_tokens, from.computed())) continue;
    request.cached_tokens = MatchOf(sequence).tokens;
    if (common <= request.cached_tokens) continue;
    if (!request.waited_for_prefix) ++counters_.prefix_waits;
    request.waited_for_prefix = true;
    request.prefix_from = id;
    request.prefix_from_arrival = other.arrival;
    request.prefix_tokens = common;
    return true;
  }
  return false;
}

// Frames that running prefills will still take: they were admitted on that promise.
int Scheduler::FramesPromised() const {
  int frames = 0;
  for (SequenceId id : prefilling_) {
    const Sequence& other = sequence(id);
    if (!other.lease.held()) continue;
    frames += cache_.FramesToFinish(other.lease, static_cast<int>(other.tokens.size()),
                                    options_.max_num_batched_tokens);
    if (!other.survivors.held()) {
      frames += FramesForSurvivors(other, static_cast<int>(other.tokens.size()));
    }
  }
  return frames;
}

bool Scheduler::TryAdmit(Sequence& sequence) {
  for (;;) {
    kv::PrefixMatch match = MatchOf(sequence);
    const int length = static_cast<int>(sequence.tokens.size());
    const int needed = cache_.FramesToFinish(match, length, options_.max_num_batched_tokens) +
                       FramesForSurvivors(sequence, length) + FramesPromised() +
                       std::max(headroom_, GrowthExpected());
    if (running_.empty() || needed <= cache_.frames_available()) {
      if (std::optional<kv::Lease> lease = ReserveFirstChunk(sequence, match)) {
        sequence.lease = *std::move(lease);
        Admitted(sequence, match);
        return true;
      }
      QUIRE_CHECK(!running_.empty());  // alone it always fits
    }
    if (plan_.tokens() > 0 || !ReleaseIdleBeam()) return false;
  }
}

// As much of the first chunk as fits. `match` loses its part to copy where that makes the
// difference.
std::optional<kv::Lease> Scheduler::ReserveFirstChunk(const Sequence& sequence,
                                                      kv::PrefixMatch& match) {
  for (;;) {
    const int uncomputed = static_cast<int>(sequence.tokens.size()) - match.tokens;
    const int wanted = match.tokens + std::min(uncomputed, prefill_budget_);
    int length = cache_.LongestReservation(match, wanted);
    const int survivors = FramesForSurvivors(sequence, length);
    if (survivors > 0 &&
        cache_.FramesToReserve(match, length) + survivors > cache_.frames_available()) {
      length = cache_.LongestReservation(match, length - 1);
    }
    if (length > match.tokens) return cache_.Reserve(match, length);
    if (!match.partial_source) return std::nullopt;
    match = cache_.FullBlocksOnly(match);
  }
}

// Takes memory and seat of a running beam that waits for its siblings; it is computed again later.
bool Scheduler::ReleaseIdleBeam() {
  for (size_t i = running_.size(); i-- > 0;) {
    if (!At(running_[i]).awaits_siblings()) continue;
    seats_taken_ -= SeatsOf(At(running_[i]));
    Preempt(i);
    return true;
  }
  return false;
}

void Scheduler::Admitted(Sequence& sequence, const kv::PrefixMatch& match) {
  RequestState& request = RequestOf(sequence);
  const bool first = !request.admitted_before;
  if (first) {
    request.admitted_before = true;
    --requests_waiting_new_;
    sequence.cached_tokens = match.tokens;
    counters_.prompt_tokens_queried += sequence.prompt_tokens;
    counters_.prompt_tokens_hit += match.tokens;
  }
  std::erase(waiting_, sequence.id);
  sequence.state = SequenceState::kRunning;
  seats_taken_ += SeatsOf(sequence);
  InsertRunning(sequence.id);
  plan_.admitted.push_back(sequence.id);
  const int tokens = sequence.lease.reserved() - sequence.lease.committed();
  if (sequence.uncomputed() > 1) prefilling_.push_back(sequence.id);
  // Room for the whole answer now: no later step allocates for it.
  sequence.tokens.reserve(sequence.prompt_tokens +
                          std::min(MaxTokensOf(request.request), options_.max_model_len));
  prefill_budget_ -= tokens;
  AddRun(sequence, tokens);
  if (first) CountOvertakes(request);
}

void Scheduler::CountOvertakes(const RequestState& admitted) {
  bool reordered = false;
  for (SequenceId id : waiting_) {
    RequestState& other = At(At(id).request);
    if (other.admitted_before || other.arrival > admitted.arrival ||
        other.request.priority != admitted.request.priority) {
      continue;
    }
    ++other.overtaken;
    counters_.overtakes_max = std::max(counters_.overtakes_max, other.overtaken);
    reordered |= other.overtaken == options_.max_overtakes;
  }
  // Whoever has reached the bound goes next, even if it was passed over in this very step.
  if (reordered) BuildOrder();
}

}  // namespace quire::sched
