// FakeEngine: runs a Scheduler without a model in tests. The next token is a function of the tokens
// before it, the sequence's index and nothing else, like a model's with seeded sampling: so
// whatever the scheduler does, a request's outputs must not change. KV contents are followed
// through FakeFrames.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kv/fake_frames.h"
#include "sched/scheduler.h"

namespace quire::sched {

// What a finished request gave.
struct FakeResult {
  std::vector<std::vector<TokenId>> outputs;  // [sequences]
  std::vector<FinishReason> reasons;
  int cached_tokens = 0;
  std::vector<BeamHypothesis> hypotheses;
  friend bool operator==(const FakeResult& a, const FakeResult& b) {
    return a.outputs == b.outputs;
  }
};

class FakeEngine {
 public:
  FakeEngine(SchedulerOptions options, const kv::KvCacheOptions& cache_options, int vocabulary)
      : scheduler_(std::move(options), cache_options),
        frames_(scheduler_.cache().options()),
        vocabulary_(vocabulary) {}

  Scheduler& scheduler() { return scheduler_; }
  const std::map<std::string, FakeResult>& results() const { return results_; }

  TokenId NextToken(std::span<const TokenId> tokens, int index) const {
    return static_cast<TokenId>(Hash(tokens, index) % vocabulary_);
  }

  // Guesses ahead for every running sequence: up to `drafts_max` tokens, of which `right` in 100
  // are what comes.
  void ProposeDrafts(base::CounterRng& rng, int drafts_max, int right) {
    CollectFinished();
    for (const SequenceId id : scheduler_.running()) {
      const Sequence& sequence = scheduler_.sequence(id);
      const int most = std::min(scheduler_.DraftsMax(id), drafts_max);
      if (sequence.finish_reason || most == 0) continue;
      std::vector<TokenId> tokens = sequence.tokens;
      std::vector<TokenId> drafts;
      for (uint64_t left = rng.NextBelow(most + 1); left > 0; --left) {
        const bool is_right = static_cast<int>(rng.NextBelow(100)) < right;
        drafts.push_back(is_right ? NextToken(tokens, sequence.index)
                                  : static_cast<TokenId>(rng.NextBelow(vocabulary_)));
        tokens.push_back(drafts.back());
      }
      scheduler_.Propose(id, drafts);
    }
  }

  // The next step does without these running sequences, if it can.
  void SitOut(std::vector<SequenceId> sequences) { sitting_out_ = std::move(sequences); }

  // One step; `meanwhile` is called while it runs. False when there was nothing to do.
  bool Step(base::FunctionRef<void()> meanwhile) {
    CollectFinished();  // Schedule drops them
    const std::vector<SequenceId> sitting_out = std::exchange(sitting_out_, {});
    const StepPlan& plan = scheduler_.Schedule(sitting_out);
    for (const ScheduledSequence& run : plan.sequences) {
      QUIRE_CHECK(std::ranges::find(sitting_out, run.sequence) == sitting_out.end());
    }
    if (plan.empty()) return !sitting_out.empty() && Step(meanwhile);
    frames_.Copy(plan.copies);
    for (const ScheduledSequence& run : plan.sequences) {
      const Sequence& sequence = scheduler_.sequence(run.sequence);
      const Request& request = scheduler_.request(sequence.request).request;
      QUIRE_CHECK_EQ(run.first_position, sequence.computed());
      CheckSealsNoDrafts(run);
      Compute(sequence, {request.cache_salt, request.adapter}, run);
    }
    Sample(plan);
    meanwhile();
    scheduler_.Commit(outputs_);
    Evict();
    CollectFinished();
    return true;
  }
  bool Step() {
    return Step([] {});
  }

  void RunToEnd() {
    while (!scheduler_.idle()) QUIRE_CHECK(Step());
    scheduler_.Schedule();
  }

 private:
  // A step seals what it completes: that must be the same with and without the drafts.
  void CheckSealsNoDrafts(const ScheduledSequence& run) const {
    const int residual = scheduler_.cache().options().residual_tokens;
    const int end = run.first_position + run.tokens;
    if (residual > 0) QUIRE_CHECK_EQ(end / residual, (end - run.drafts) / residual);
  }

  uint64_t Hash(std::span<const TokenId> tokens, int index) const {
    uint64_t hash = base::Mix64(index);
    for (TokenId token : tokens) hash = base::Mix64(hash ^ token);
    return hash;
  }

  void Compute(const Sequence& sequence, const kv::CacheKey& key, const ScheduledSequence& run) {
    if (sequence.evicted == 0) {
      std::vector<TokenId> tokens = sequence.tokens;
      tokens.insert(tokens.end(), sequence.drafts.begin(), sequence.drafts.begin() + run.drafts);
      return frames_.Compute(sequence.lease, tokens, key, run.first_position, run.tokens);
    }
    std::vector<int>& positions = positions_.at(sequence.id);
    const auto first = static_cast<int>(positions.size());
    QUIRE_CHECK_EQ(first, sequence.lease.committed());
    for (int i = 0; i < run.tokens; ++i) positions.push_back(run.first_position + i);
    frames_.ComputeKept(sequence.lease, sequence.tokens, key, positions, first);
  }

  // Which tokens stay is a matter of the tokens and the index alone.
  void Evict() {
    for (const PendingEviction& eviction : scheduler_.evictions()) {
      const Sequence& sequence = scheduler_.sequence(eviction.sequence);
      std::vector<int>& positions = positions_[eviction.sequence];
      if (sequence.evicted == 0) {
        positions.resize(eviction.slots);
        std::iota(positions.begin(), positions.end(), 0);
      }
      QUIRE_CHECK_EQ(static_cast<int>(positions.size()), eviction.slots);
      std::vector<float> scores;
      for (const int position : positions) {
        const auto seen = std::span<const TokenId>(sequence.tokens).first(position + 1);
        scores.push_back(static_cast<float>(Hash(seen, sequence.index) % 1000));
      }
      std::vector<int> kept(eviction.kept);
      std::vector<int> scratch;
      kv::SelectKept(*sequence.eviction, {scores, positions}, kept, scratch);
      const bool in_place = !sequence.survivors.held();
      frames_.Move(sequence.lease, in_place ? sequence.lease : sequence.survivors, kept);
      for (int i = 0; i < eviction.kept; ++i) positions[i] = positions[kept[i]];
      positions.resize(eviction.kept);
    }
    scheduler_.EvictionsDone();
  }

  void Sample(const StepPlan& plan) {
    outputs_.clear();
    drawn_.clear();
    drawn_.reserve(plan.samplers.size() + plan.draft_tokens);
    candidates_.clear();
    candidates_.reserve(plan.samplers.size());
    for (const ScheduledSequence& run : plan.sequences) {
      const Sequence& row = scheduler_.sequence(run.sequence);
      const RequestState& request = scheduler_.request(row.request);
      for (SequenceId id : plan.samplers_of(run)) {
        const Sequence& sequence = scheduler_.sequence(id);
        SequenceOutput output{.sequence = id, .tokens = {}, .candidates = {}};
        if (request.beams) {
          candidates_.push_back(Candidates(row.tokens, 2 * request.request.sequences()));
          output.candidates = candidates_.back();
        } else {
          output.tokens = Draw(row, run.drafts, sequence.index);
        }
        outputs_.push_back(output);
      }
    }
  }

  // The next token, and as long as that is what the draft says, the one after it.
  std::span<const TokenId> Draw(const Sequence& row, int drafts, int index) {
    const Request& request = scheduler_.request(row.request).request;
    std::vector<TokenId> tokens = row.tokens;
    const size_t first = drawn_.size();
    for (int i = 0; i <= drafts; ++i) {
      tokens.push_back(NextToken(tokens, index));
      drawn_.push_back(tokens.back());
      const int output_tokens = static_cast<int>(tokens.size()) - row.prompt_tokens;
      if (i == drafts || tokens.back() != row.drafts[i]) break;
      if (scheduler_.EndWith(request, tokens.back(), output_tokens)) break;
    }
    return std::span(drawn_).subspan(first);
  }

  std::vector<TokenLogprob> Candidates(std::span<const TokenId> tokens, int count) const {
    const uint64_t hash = Hash(tokens, 0);
    std::vector<TokenLogprob> all;
    for (TokenId t = 0; t < vocabulary_; ++t) {
      const double unit = static_cast<double>(base::Mix64(hash ^ (t + 1)) >> 11) * 0x1.0p-53;
      all.push_back({t, static_cast<float>(-0.1 - 5.0 * unit)});
    }
    std::ranges::stable_sort(all, std::ranges::greater{}, &TokenLogprob::logprob);
    all.resize(std::min<size_t>(all.size(), count));
    return all;
  }

  void CollectFinished() {
    for (RequestId id : scheduler_.finished()) {
      const RequestState& request = scheduler_.request(id);
      FakeResult result;
      for (SequenceId s : request.sequences) {
        const auto output = scheduler_.sequence(s).output();
        result.outputs.emplace_back(output.begin(), output.end());
        result.reasons.push_back(*scheduler_.sequence(s).finish_reason);
        result.cached_tokens = std::max(result.cached_tokens, scheduler_.sequence(s).cached_tokens);
      }
      if (request.beams) {
        const auto hypotheses = request.beams->hypotheses();
        result.hypotheses.assign(hypotheses.begin(), hypotheses.end());
      }
      results_[request.request.id] = std::move(result);
    }
  }

  Scheduler scheduler_;
  kv::FakeFrames frames_;
  int vocabulary_;
  std::map<std::string, FakeResult> results_;
  std::map<SequenceId, std::vector<int>> positions_;  // of what is left, by slot
  std::vector<SequenceId> sitting_out_;
  std::vector<SequenceOutput> outputs_;
  std::vector<TokenId> drawn_;
  std::vector<std::vector<TokenLogprob>> candidates_;
};

}  // namespace quire::sched
