// Mailbox: the only door between threads. Anybody posts; the engine's thread takes everything that
// has come, in order, before each step.
//
// Owns the messages on their way. Never blocks a poster.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <variant>
#include <vector>

#include "sched/request.h"

namespace quire::engine {

class Engine;

// A submitted request, by a number that is never used again.
using Ticket = uint64_t;

struct SubmitMessage {
  Ticket ticket = 0;
  sched::Request request;
  double posted_s = 0;  // base::MonotonicSeconds()
};
struct CancelMessage {
  Ticket ticket = 0;
};
// Calls `visit` between two steps.
struct VisitMessage {
  std::function<void(Engine&)> visit;
};
struct StopMessage {};

using Message = std::variant<SubmitMessage, CancelMessage, VisitMessage, StopMessage>;

class Mailbox {
 public:
  // Any thread.
  void Post(Message message) {
    {
      const std::scoped_lock lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
  }

  // The engine's thread: swaps what has come into `messages` (cleared first), at once.
  void Take(std::vector<Message>& messages) {
    messages.clear();
    const std::scoped_lock lock(mutex_);
    messages.swap(messages_);
  }

  // The same, after waiting until something has come.
  void Await(std::vector<Message>& messages) {
    messages.clear();
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !messages_.empty(); });
    messages.swap(messages_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Message> messages_;
};

}  // namespace quire::engine
