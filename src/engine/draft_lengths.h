// DraftLengths: how many tokens to draft for whom, so that a step gives the most tokens per second.
//
// A step that verifies m drafts beside its B own rows takes StepTimes::Seconds(B + m) plus what
// drafting costs, and gives B tokens and, of a sequence whose drafts are right with probability a
// each, a + a^2 + ... + a^k more (2211.17192). Drafts are added in order of their probability, and
// as many kept as make tokens per second greatest; none if plain decoding is about as good.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::engine {

// Seconds of a step by its number of rows, as measured lately. A few rows are told apart; more are
// measured by fours, as the matrix kernels compute them.
class StepTimes {
 public:
  static constexpr int kRowsMax = 512;

  void Observe(int rows, double seconds);
  // Between what was measured for fewer rows and for more; 0 before the first measurement.
  double Seconds(int rows) const;
  // Whether steps of so many rows were measured often enough to compare others with them.
  bool Known(int rows) const;

 private:
  struct Mean {
    double rows = 0;
    double seconds = 0;
    int count = 0;
    int64_t last = 0;  // measurement
  };
  static constexpr int kSingle = 8;  // rows that are told apart
  static constexpr int kTogether = 4;
  static constexpr int kMeans = kSingle + (kRowsMax - kSingle) / kTogether;
  static int IndexOf(int rows);

  std::array<Mean, kMeans> means_ = {};
  int64_t measurements_ = 0;
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

// `rows`: of the step without these drafts. `pass_seconds`: drafting one more token of all. With a
// `gain_least` of 1.1, drafts must promise a tenth more tokens per second.
void PlanDraftLengths(std::span<DraftWish> wishes, int rows, const StepTimes& times,
                      double pass_seconds, double gain_least);

}  // namespace quire::engine
