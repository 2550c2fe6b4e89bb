// ThreadTeam: the fixed set of threads that computes a step.
//
// Owns size() - 1 threads; the caller is thread 0. One owner drives it (not reentrant: a task must
// not start another on the same team). A fork and join costs well under a microsecond while the
// threads spin; after a short spin they sleep. Nothing here allocates after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace quire::base {

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(thread) once on every thread and returns when all are done.
  void Run(FunctionRef<void(int thread)> task);

  // Calls task(begin, end, thread) over [0, items) in chunks of at most `grain`, handed out in
  // ascending order to whichever thread is free. What is computed must not depend on the chunk.
  void ParallelFor(int64_t items, int64_t grain,
                   FunctionRef<void(int64_t begin, int64_t end, int thread)> task);

 private:
  void WorkerLoop(int thread);

  std::vector<std::thread> workers_;
  const FunctionRef<void(int)>* task_ = nullptr;  // valid while a Run is under way
  bool stopping_ = false;                         // written before generation_ is bumped
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int32_t> running_{0};
  alignas(64) std::atomic<int64_t> next_item_{0};
};

}  // namespace quire::base
