#include "cli/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

namespace quire::cli {

ProgressBar::ProgressBar(const Terminal& terminal, ProgressBarOptions options)
    : visible_(terminal.stderr_is_terminal()),
      options_(std::move(options)),
      start_(Clock::now()),
      drawn_(start_) {}

ProgressBar::~ProgressBar() {
  if (visible_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::Update(int64_t done, std::optional<int64_t> tokens) {
  if (!visible_) return;
  Clock::time_point now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100) && done < options_.total) return;
  drawn_ = now;
  double seconds = std::chrono::duration<double>(now - start_).count();
  std::string line = "\r" + Line(options_, done, tokens, seconds) + "\033[K";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

std::string ProgressBar::Line(const ProgressBarOptions& options, int64_t done,
                              std::optional<int64_t> tokens, double seconds) {
  constexpr int kCells = 24;
  std::string line = options.label + " ";
  double share = 0.0;
  if (options.total > 0) {
    share = std::clamp(static_cast<double>(done) / static_cast<double>(options.total), 0.0, 1.0);
    auto filled = static_cast<size_t>(share * kCells);
    line += "[" + std::string(filled, '#') + std::string(kCells - filled, '.') + "] ";
    line += fmt::format("{}/{} {}", done, options.total, options.unit);
  } else {
    line += fmt::format("{} {}", done, options.unit);
  }
  if (seconds > 0) {
    if (tokens) line += fmt::format("  {:.1f} tokens/s", static_cast<double>(*tokens) / seconds);
    if (share > 0 && share < 1) {
      auto left = static_cast<int64_t>(seconds * (1 - share) / share);
      line += fmt::format("  {}:{:02} left", left / 60, left % 60);
    }
  }
  return line;
}

}  // namespace quire::cli
