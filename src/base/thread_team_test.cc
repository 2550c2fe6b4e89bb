#include "base/thread_team.h"

#include <vector>

#include <gtest/gtest.h>

namespace quire::base {
namespace {

TEST(ThreadTeam, RunCallsEveryThreadOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadTeam team(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(threads, 0);
      team.Run([&](int thread) { ++calls[thread]; });
      EXPECT_EQ(calls, std::vector<int>(threads, 1));
    }
  }
}

TEST(ThreadTeam, ParallelForCoversEveryItemExactlyOnce) {
  ThreadTeam team(3);
  for (int64_t items : {0, 1, 2, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64}) {
      std::vector<std::atomic<int>> hits(items);
      team.ParallelFor(items, grain, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_LT(thread, team.size());
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadTeam, SleepingWorkersWakeForTheNextRun) {
  ThreadTeam team(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> calls{0};
    team.Run([&](int) { ++calls; });
    EXPECT_EQ(calls, 2);
  }
}

}  // namespace
}  // namespace quire::base
