// BeamSearch: the arithmetic of beams of one request. Knows no KV and no model; the scheduler forks
// and drops leases as it says.
//
// Scores are sum of log probabilities / length^length_penalty, length counting output tokens, the
// end of text included. Ties are broken by the order of beams and candidates, so a run replays.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sched/request.h"
#include "sched/step_plan.h"

namespace quire::sched {

// A finished continuation of the prompt.
struct BeamHypothesis {
  std::vector<TokenId> tokens;  // without the ending token
  double logprob_sum = 0.0;
  double score = 0.0;
  FinishReason reason = FinishReason::kStop;
};

class BeamSearch {
 public:
  struct Options {
    BeamSearchParams params;
    int width = 1;
    int max_tokens = 16;
    int min_tokens = 0;
    std::vector<TokenId> end_ids;  // tokens that end a hypothesis
  };
  // One running beam as the next step needs it.
  struct Survivor {
    int parent = 0;  // index of the beam it continues
    TokenId token = 0;
    double logprob_sum = 0.0;
  };
  // A running beam's output so far and its best 2 * width continuations, best first.
  struct Beam {
    std::span<const TokenId> output;
    std::span<const TokenLogprob> candidates;
  };

  explicit BeamSearch(Options options);

  // Extends the running beams by one token. `beams` in the order of the survivors returned by the
  // call before (at first: the prompt alone). Returns at most `width` survivors, best first; none
  // when the search is over.
  std::span<const Survivor> Advance(std::span<const Beam> beams);

  bool done() const { return done_; }
  // Best first, at most `width`. Complete when done.
  std::span<const BeamHypothesis> hypotheses() const { return hypotheses_; }

 private:
  double Score(double logprob_sum, int length) const;
  void AddHypothesis(BeamHypothesis hypothesis);
  bool CannotImprove(double best_running_sum, int length) const;

  Options options_;
  bool done_ = false;
  std::vector<double> sums_;  // [running beams]
  std::vector<Survivor> survivors_;
  std::vector<BeamHypothesis> hypotheses_;  // sorted, best first
};

}  // namespace quire::sched
