// ProgressBar: one line on stderr, only where stderr is a terminal. Never in logs and pipes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/terminal.h"

namespace quire::cli {

struct ProgressBarOptions {
  std::string label;      // "batch"
  int64_t total = 0;      // what `done` runs to; 0: unknown
  std::string unit = "";  // of `done`: "requests"
};

class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  ProgressBar(const Terminal& terminal, ProgressBarOptions options);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws at most ten times a second. `tokens` counts from the start; its rate is shown, if given.
  void Update(int64_t done, std::optional<int64_t> tokens = std::nullopt);

  // The line as it is drawn: label, bar, counts, tokens/s, time left.
  static std::string Line(const ProgressBarOptions& options, int64_t done,
                          std::optional<int64_t> tokens, double seconds);

 private:
  bool visible_;
  ProgressBarOptions options_;
  Clock::time_point start_;
  Clock::time_point drawn_;
};

}  // namespace quire::cli
