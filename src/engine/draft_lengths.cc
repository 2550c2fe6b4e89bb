#include "engine/draft_lengths.h"

#include <algorithm>
#include <cmath>

namespace quire::engine {
namespace {

constexpr double kNewShare = 0.1;     // weight of a measurement against all before it
constexpr double kOutlier = 3.0;      // times the expected: a step that was interrupted
constexpr int kTrusted = 3;           // measurements of a number of rows that stand for themselves
constexpr double kRowShare = 0.1;     // of a step's time, what a row costs until it is measured
constexpr double kGainLeast = 1.05;   // below it, plain decoding is as good
constexpr double kPriorDrafts = 3.0;  // a prior weighs as much as so many drafts

}  // namespace

void StepTimes::Observe(int rows, double seconds) {
  if (rows < 1 || rows > kRowsMax) return;
  Mean& mean = of_rows_[rows];
  if (mean.count > 0) seconds = std::min(seconds, kOutlier * mean.seconds);
  const double share = std::max(kNewShare, 1.0 / (1 + mean.count));
  mean.seconds += share * (seconds - mean.seconds);
  ++mean.count;
  const auto x = static_cast<double>(rows);
  for (double* sum : {&weight_, &rows_, &seconds_, &rows_squared_, &rows_seconds_}) {
    *sum *= 1.0 - kNewShare / 4;
  }
  weight_ += 1;
  rows_ += x;
  seconds_ += seconds;
  rows_squared_ += x * x;
  rows_seconds_ += x * seconds;
}

double StepTimes::Seconds(int rows) const {
  if (weight_ == 0) return 0;
  rows = std::min(rows, kRowsMax);
  if (of_rows_[rows].count >= kTrusted) return of_rows_[rows].seconds;
  const double mean_rows = rows_ / weight_;
  const double mean_seconds = seconds_ / weight_;
  const double spread = rows_squared_ / weight_ - mean_rows * mean_rows;
  const double covariance = rows_seconds_ / weight_ - mean_rows * mean_seconds;
  // With rows that hardly differ the slope is the prior's.
  const double prior = kRowShare * mean_seconds / (1 + kRowShare * mean_rows);
  const double slope = std::max(0.0, (covariance + prior) / (spread + 1.0));
  return std::max(mean_seconds / 4, mean_seconds + slope * (rows - mean_rows));
}

double Acceptance::Share(double prior) const {
  return (right_ + kPriorDrafts * prior) / (right_ + wrong_ + kPriorDrafts);
}

void Acceptance::Observe(int drafted, int accepted, double memory) {
  right_ = memory * right_ + accepted;
  wrong_ = memory * wrong_ + (accepted < drafted ? 1 : 0);
}

void PlanDraftLengths(std::span<DraftWish> wishes, int rows, const StepTimes& times,
                      double pass_seconds) {
  struct Candidate {
    double probability;
    size_t wish;
  };
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < wishes.size(); ++i) {
    wishes[i].length = 0;
    double probability = 1.0;
    for (int k = 0; k < wishes[i].most; ++k) {
      probability *= wishes[i].acceptance;
      candidates.push_back({probability, i});
    }
  }
  std::ranges::stable_sort(candidates, std::ranges::greater{}, &Candidate::probability);
  const double plain_seconds = times.Seconds(rows);
  if (plain_seconds == 0) return;  // nothing is known yet
  double best_rate = kGainLeast * rows / plain_seconds;
  double tokens = rows;
  size_t best = 0;
  int passes = 0;
  std::vector<int> lengths(wishes.size(), 0);
  for (size_t m = 0; m < candidates.size(); ++m) {
    tokens += candidates[m].probability;
    passes = std::max(passes, ++lengths[candidates[m].wish]);
    const double seconds = times.Seconds(rows + static_cast<int>(m) + 1) + passes * pass_seconds;
    if (tokens / seconds <= best_rate) continue;
    best_rate = tokens / seconds;
    best = m + 1;
  }
  for (size_t m = 0; m < best; ++m) ++wishes[candidates[m].wish].length;
}

}  // namespace quire::engine
