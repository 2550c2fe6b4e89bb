// Time for measuring: monotonic, in seconds.
#pragma once

#include <chrono>

namespace quire::base {

inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds since it was made or last asked.
class Stopwatch {
 public:
  double Lap() {
    const double now = MonotonicSeconds();
    const double lap = now - start_;
    start_ = now;
    return lap;
  }

 private:
  double start_ = MonotonicSeconds();
};

}  // namespace quire::base
