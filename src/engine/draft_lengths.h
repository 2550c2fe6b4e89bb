// DraftLengths: how many tokens to draft for whom, so that a step gives the most tokens per second.
//
// A step that verifies m drafts beside its B own rows takes StepTimes::Seconds(B + m) plus what
// drafting costs, and gives B tokens and, of a sequence whose drafts are right with probability a
// each, a + a^2 + ... + a^k more (2211.17192). Drafts are added in order of their probability, and
// as many kept as make tokens per second greatest; none if plain decoding is as good.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace quire::engine {

// Seconds of a step by its number of rows, as measured lately.
class StepTimes {
 public:
  static constexpr int kRowsMax = 512;

  void Observe(int rows, double seconds);
  // What was measured for as many rows, else what lies on the line through all measurements; 0
  // before the first.
  double Seconds(int rows) const;

 private:
  struct Mean {
    double seconds = 0;
    int count = 0;
  };
  std::array<Mean, kRowsMax + 1> of_rows_ = {};
  // Exponentially weighted sums for the line.
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_squared_ = 0, rows_seconds_ = 0;
};

// How often a drafter is right: the share of right ones among the drafts up to the first wrong one,
// newer ones counting more.
class Acceptance {
 public:
  // `prior`: what to expect before anything was seen.
  double Share(double prior) const;
  void Observe(int drafted, int accepted, double memory);

 private:
  double right_ = 0;
  double wrong_ = 0;
};

// A sequence that could draft.
struct DraftWish {
  double acceptance = 0;
  int most = 0;
  int length = 0;  // the answer
};

// `rows`: of the step without these drafts. `pass_seconds`: drafting one more token of all.
void PlanDraftLengths(std::span<DraftWish> wishes, int rows, const StepTimes& times,
                      double pass_seconds);

}  // namespace quire::engine
