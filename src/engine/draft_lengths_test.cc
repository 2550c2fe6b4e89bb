// How much is drafted.
#include "engine/draft_lengths.h"

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

// Many rows cost what the next multiple of four does.
double SecondsOf(int rows, double base, double per_row) {
  return base + per_row * (rows <= 8 ? rows : (rows + 3) / 4 * 4);
}

StepTimes TimesOf(double base, double per_row) {
  StepTimes times;
  for (int rows = 1; rows <= 64; ++rows) {
    for (int i = 0; i < 5; ++i) times.Observe(rows, SecondsOf(rows, base, per_row));
  }
  return times;
}

int LengthFor(double acceptance, const StepTimes& times, double pass_seconds) {
  DraftWish wish{acceptance, 16, 0};
  PlanDraftLengths({&wish, 1}, 1, times, pass_seconds, 1.05);
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
        const double rate = tokens / (SecondsOf(1 + k, 10e-3, 0.5e-3) + pass * k);
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
  PlanDraftLengths(wishes, 3, times, 0, 1.05);
  EXPECT_GT(wishes[1].length, wishes[0].length);
  EXPECT_LE(wishes[2].length, 2);
}

TEST(StepTimes, UnmeasuredRowsLieBetweenTheirNeighbours) {
  StepTimes times;
  EXPECT_EQ(times.Seconds(3), 0);
  times.Observe(2, 12e-3);
  EXPECT_LT(times.Seconds(1), 12e-3);
  EXPECT_GT(times.Seconds(10), 15e-3);
  times.Observe(10, 20e-3);
  EXPECT_NEAR(times.Seconds(6), 16e-3, 1e-9);
  EXPECT_EQ(times.Seconds(2), 12e-3);
  EXPECT_EQ(times.Seconds(12), 20e-3);  // as many tiles of the kernels
  EXPECT_GT(times.Seconds(40), 30e-3);
  EXPECT_GE(times.Seconds(5000), times.Seconds(500));
}

// Where every row costs the same, nothing is gained; steps of many rows must not hide that.
TEST(StepTimes, StepsOfPromptsDoNotBlurThoseOfDecoding) {
  StepTimes times;
  for (int i = 0; i < 50; ++i) times.Observe(500, 1.0);
  for (int i = 0; i < 3; ++i) times.Observe(16, 0.032);
  for (int i = 0; i < 3; ++i) times.Observe(32, 0.064);
  DraftWish wishes[16];
  for (DraftWish& wish : wishes) wish = {0.8, 16, 0};
  PlanDraftLengths(wishes, 16, times, 0, 1.05);
  for (const DraftWish& wish : wishes) EXPECT_EQ(wish.length, 0);
}

TEST(StepTimes, AreKnownOnceMeasuredAFewTimes) {
  StepTimes times;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(times.Known(14));
    DraftWish wish{0.9, 16, 0};
    PlanDraftLengths({&wish, 1}, 14, times, 0, 1.05);
    EXPECT_EQ(wish.length, 0);
    times.Observe(13 + i, 1e-3);
  }
  EXPECT_TRUE(times.Known(14));
  EXPECT_FALSE(times.Known(17));
  EXPECT_FALSE(times.Known(513));
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
  EXPECT_LT(acceptance.Share(0.6), 0.25);
}

}  // namespace
}  // namespace quire::engine
