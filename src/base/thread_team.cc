#include "base/thread_team.h"

#include <algorithm>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire::base {
namespace {

// About 20 microseconds: longer than the gap between two regions of a forward pass, far shorter
// than a scheduler tick, so an idle server does not burn its cores.
constexpr int kSpinRounds = 2000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` differs from `old`; returns the new value.
template <typename T>
T AwaitChange(const std::atomic<T>& value, T old) {
  for (int round = 0; round < kSpinRounds; ++round) {
    T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) {
  QUIRE_CHECK_GE(threads, 1);
  workers_.reserve(threads - 1);
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::Run(FunctionRef<void(int)> task) {
  if (workers_.empty()) return task(0);
  task_ = &task;
  running_.store(static_cast<int32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  task(0);
  int32_t running = running_.load(std::memory_order_acquire);
  while (running != 0) running = AwaitChange(running_, running);
  task_ = nullptr;
}

void ThreadTeam::ParallelFor(int64_t items, int64_t grain,
                             FunctionRef<void(int64_t, int64_t, int)> task) {
  QUIRE_CHECK_GT(grain, 0);
  if (items <= grain || workers_.empty()) {
    if (items > 0) task(0, items, 0);
    return;
  }
  next_item_.store(0, std::memory_order_relaxed);
  Run([&](int thread) {
    for (;;) {
      int64_t begin = next_item_.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= items) return;
      task(begin, std::min(begin + grain, items), thread);
    }
  });
}

void ThreadTeam::WorkerLoop(int thread) {
  uint32_t seen = 0;
  for (;;) {
    seen = AwaitChange(generation_, seen);
    if (stopping_) return;
    (*task_)(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace quire::base
