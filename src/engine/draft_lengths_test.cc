// How much is drafted.
#include "engine/draft_lengths.h"

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

StepTimes TimesOf(double base, double per_row) {
  StepTimes times;
  for (int rows = 1; rows <= 64; ++rows) {
    for (int i = 0; i < 5; ++i) times.Observe(rows, base + per_row * rows);
  }
  return times;
}

int LengthFor(double acceptance, const StepTimes& times, double pass_seconds) {
  DraftWish wish{acceptance, 16, 0};
  PlanDraftLengths({&wish, 1}, 1, times, pass_seconds);
  return wish.length;
}

TEST(DraftLengths, AreThoseOfTheGreatestRate) {
  const StepTimes times = TimesOf(10e-3, 0.5e-3);
  for (const double acceptance : {0.3, 0.6, 0.8, 0.95}) {
    for (const double pass : {0.0, 1e-3}) {
      int best = 0;
      double best_rate = 1.05 / 10.5e-3;
      double tokens = 1;
      double probability = 1;
      for (int k = 1; k <= 16; ++k) {
        tokens += probability *= acceptance;
        const double rate = tokens / (10e-3 + 0.5e-3 * (1 + k) + pass * k);
        if (rate > best_rate) {
          best_rate = rate;
          best = k;
        }
      }
      EXPECT_EQ(LengthFor(acceptance, times, pass), best) << acceptance << " " << pass;
    }
  }
}

TEST(DraftLengths, NothingIsDraftedWhereRowsCostAsMuchAsSteps) {
  EXPECT_EQ(LengthFor(0.9, TimesOf(0, 1e-3), 0), 0);
  EXPECT_GT(LengthFor(0.9, TimesOf(10e-3, 0), 0), 8);
  EXPECT_EQ(LengthFor(0.9, TimesOf(1e-3, 0), 2e-3), 0);  // nor where drafting is too dear
}

TEST(DraftLengths, WhoIsRightMoreOftenDraftsMore) {
  const StepTimes times = TimesOf(10e-3, 1e-3);
  DraftWish wishes[] = {{0.2, 16, 0}, {0.9, 16, 0}, {0.6, 2, 0}};
  PlanDraftLengths(wishes, 3, times, 0);
  EXPECT_GT(wishes[1].length, wishes[0].length);
  EXPECT_LE(wishes[2].length, 2);
}

TEST(StepTimes, UnmeasuredRowsLieOnTheLine) {
  StepTimes times;
  for (int i = 0; i < 200; ++i) {
    times.Observe(2, 12e-3);
    times.Observe(10, 20e-3);
  }
  EXPECT_NEAR(times.Seconds(6), 16e-3, 1e-3);
  EXPECT_NEAR(times.Seconds(2), 12e-3, 1e-6);
  EXPECT_GT(times.Seconds(40), 40e-3);
}

TEST(StepTimes, AnInterruptedStepIsNotTakenAtItsWord) {
  StepTimes times;
  for (int i = 0; i < 10; ++i) times.Observe(1, 1e-3);
  times.Observe(1, 10.0);
  EXPECT_LT(times.Seconds(1), 1.3e-3);
}

TEST(Acceptance, FollowsWhatIsSeenAndForgetsWhatWas) {
  Acceptance acceptance;
  EXPECT_EQ(acceptance.Share(0.6), 0.6);
  for (int i = 0; i < 50; ++i) acceptance.Observe(4, 4, 0.9);
  EXPECT_GT(acceptance.Share(0.6), 0.9);
  for (int i = 0; i < 50; ++i) acceptance.Observe(4, 0, 0.9);
  EXPECT_LT(acceptance.Share(0.6), 0.2);
}

}  // namespace
}  // namespace quire::engine
