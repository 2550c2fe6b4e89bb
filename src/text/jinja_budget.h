// What one rendering may use: steps (time), live bytes (memory) and nesting (stack). Also the
// exception the engine's inside reports failures with; it never leaves Template.
//
// Invariant: whatever takes time or memory out of proportion to what it was given asks here first,
// so that no template and no arguments can hang or exhaust the process.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/result.h"

namespace quire::text::jinja {

struct Limits {
  int64_t max_steps = 20'000'000;        // about a second
  int64_t max_output_bytes = 32 << 20;   // of the rendered text
  int64_t max_memory_bytes = 256 << 20;  // live values and unfinished text
  int max_depth = 400;                   // nested expressions, statements, macro calls, values
};

// Thrown inside the engine, turned into an Error by Template. `line` 0: not known here.
struct Failure {
  ErrorKind kind = ErrorKind::kInvalid;
  std::string message;
  int line = 0;
};

// The engine's only throw: rendering recurses through values, expressions and statements, and a
// Result at each of their steps would bury what they do.
[[noreturn]] inline void Raise(Failure failure) {
  throw failure;
}

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  Raise({ErrorKind::kInvalid, fmt::format(format, std::forward<Args>(args)...), 0});
}

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void Step() {
    if (++steps_ > limits_.max_steps) FailSteps();
  }
  // Work proportional to `bytes` of text or `bytes / 8` values.
  void StepBytes(int64_t bytes) {
    steps_ += bytes >> 5;
    if (steps_ > limits_.max_steps) FailSteps();
  }

  // Before building something of `bytes`.
  void CheckRoom(int64_t bytes) const {
    if (bytes > limits_.max_memory_bytes - bytes_) FailMemory();
  }
  void Take(int64_t bytes) {
    CheckRoom(bytes);
    bytes_ += bytes;
  }
  void Give(int64_t bytes) noexcept { bytes_ -= bytes; }

  void Enter() {
    if (++depth_ > limits_.max_depth) FailDepth();
  }
  void Leave() noexcept { --depth_; }

  const Limits& limits() const { return limits_; }
  int64_t bytes_live() const { return bytes_; }

 private:
  [[noreturn]] void FailSteps() const;
  [[noreturn]] void FailMemory() const;
  [[noreturn]] void FailDepth() const;

  Limits limits_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int depth_ = 0;
};

// One level of nesting for as long as it lives.
class Nesting {
 public:
  explicit Nesting(Budget& budget) : budget_(budget) { budget_.Enter(); }
  ~Nesting() { budget_.Leave(); }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Budget& budget_;
};

}  // namespace quire::text::jinja
