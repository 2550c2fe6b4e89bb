#include "sched/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace quire::sched {

BeamSearch::BeamSearch(Options options) : options_(std::move(options)), sums_{0.0} {}

double BeamSearch::Score(double logprob_sum, int length) const {
  return logprob_sum / std::pow(static_cast<double>(std::max(1, length)),
                                static_cast<double>(options_.params.length_penalty));
}

void BeamSearch::AddHypothesis(BeamHypothesis hypothesis) {
  const auto place = std::ranges::find_if(
      hypotheses_, [&](const BeamHypothesis& h) { return h.score < hypothesis.score; });
  hypotheses_.insert(place, std::move(hypothesis));
  if (static_cast<int>(hypotheses_.size()) > options_.width) hypotheses_.pop_back();
}

// Whether no continuation of a beam with this sum can replace the worst of `width` hypotheses.
bool BeamSearch::CannotImprove(double best_running_sum, int length) const {
  if (static_cast<int>(hypotheses_.size()) < options_.width) return false;
  using EarlyStopping = BeamSearchParams::EarlyStopping;
  if (options_.params.early_stopping == EarlyStopping::kOn) return true;
  // Sums only fall. With a positive penalty a longer hypothesis is divided by more, so its score
  // can still rise: the bound takes the longest possible one.
  const bool longest = options_.params.early_stopping == EarlyStopping::kNever &&
                       options_.params.length_penalty > 0.0f;
  const int at_length = longest ? options_.max_tokens : length;
  return hypotheses_.back().score >= Score(best_running_sum, at_length);
}

std::span<const BeamSearch::Survivor> BeamSearch::Advance(std::span<const Beam> beams) {
  QUIRE_CHECK(!done_);
  QUIRE_CHECK_EQ(beams.size(), sums_.size());
  std::vector<Survivor> extended;
  for (size_t i = 0; i < beams.size(); ++i) {
    for (const TokenLogprob& candidate : beams[i].candidates) {
      extended.push_back({.parent = static_cast<int>(i),
                          .token = candidate.token,
                          .logprob_sum = sums_[i] + static_cast<double>(candidate.logprob)});
    }
  }
  std::ranges::stable_sort(extended, std::ranges::greater{}, &Survivor::logprob_sum);

  const int length = static_cast<int>(beams[0].output.size()) + 1;
  survivors_.clear();
  const size_t considered =
      std::min<size_t>(extended.size(), 2 * static_cast<size_t>(options_.width));
  for (size_t i = 0; i < considered; ++i) {
    const Survivor& s = extended[i];
    const bool ends = std::ranges::find(options_.end_ids, s.token) != options_.end_ids.end();
    if (!ends) {
      if (static_cast<int>(survivors_.size()) < options_.width) survivors_.push_back(s);
      continue;
    }
    // An ending worse than `width` others is not even considered; nor one that comes too early.
    if (i >= static_cast<size_t>(options_.width) || length <= options_.min_tokens) continue;
    const std::span<const TokenId> output = beams[s.parent].output;
    AddHypothesis({.tokens = {output.begin(), output.end()},
                   .logprob_sum = s.logprob_sum,
                   .score = Score(s.logprob_sum, length),
                   .reason = FinishReason::kStop});
  }

  if (!survivors_.empty() && CannotImprove(survivors_[0].logprob_sum, length)) survivors_.clear();
  if (length >= options_.max_tokens) {
    for (const Survivor& s : survivors_) {
      const std::span<const TokenId> output = beams[s.parent].output;
      BeamHypothesis hypothesis{.tokens = {output.begin(), output.end()},
                                .logprob_sum = s.logprob_sum,
                                .score = Score(s.logprob_sum, length),
                                .reason = FinishReason::kLength};
      hypothesis.tokens.push_back(s.token);
      AddHypothesis(std::move(hypothesis));
    }
    survivors_.clear();
  }
  done_ = survivors_.empty();
  sums_.clear();
  for (const Survivor& s : survivors_) sums_.push_back(s.logprob_sum);
  return survivors_;
}

}  // namespace quire::sched
