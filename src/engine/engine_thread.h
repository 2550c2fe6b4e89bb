// EngineThread: an Engine on a thread of its own, and what the rest of the program may ask of it.
//
//     Submit, Cancel, Visit --> Mailbox --> DrainMailbox, Engine::Step --> deliver(events)
//
// Owns the engine and the thread. Every public function may be called from any thread; `deliver`
// and visits run on the engine's thread, between two steps, and must be quick.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/mailbox.h"
#include "engine/metrics.h"

namespace quire::engine {

// News of a request. An Error says that it was refused, and is its last.
struct EngineEvent {
  Ticket ticket = 0;
  std::variant<SequenceUpdate, Error> news;
};

class EngineThread {
 public:
  // All events of a step at once, in the order in which they happened.
  using Deliver = std::function<void(std::vector<EngineEvent>)>;

  // `metrics` must outlive the thread.
  EngineThread(std::unique_ptr<Engine> engine, Metrics& metrics, Deliver deliver);
  // Stops after the running step; requests that have not finished hear no more.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Never fails here: a refusal is the request's first and last event.
  Ticket Submit(sched::Request request);
  // No event follows the next step. Unknown and finished tickets are ignored.
  void Cancel(Ticket ticket);
  void Visit(std::function<void(Engine&)> visit);

  EngineSnapshot snapshot() const;

  // Compiles a constraint of a request that comes, so that no step waits for it. kUsage if it
  // cannot be compiled.
  Status PrepareConstraint(const sched::OutputConstraint& constraint) {
    return engine_->PrepareConstraint(constraint);
  }

  // Fixed at start.
  const LoadedModel& model() const { return engine_->model(); }
  int max_model_len() const { return engine_->max_model_len(); }
  const kv::EvictionOptions& eviction() const { return engine_->eviction(); }

 private:
  // A request on its way.
  struct Flight {
    Ticket ticket = 0;
    RequestTimes times;
    int sequences_left = 0;
    bool failed = false;  // one of its sequences
  };

  void Loop();
  void DrainMailbox();
  void Handle(SubmitMessage& message);
  void Handle(CancelMessage& message);
  void Handle(VisitMessage& message);
  void Handle(StopMessage& message);
  void NoteAdmissions();
  void Take(const SequenceUpdate& update);
  void Publish();

  std::unique_ptr<Engine> engine_;
  Metrics& metrics_;
  Deliver deliver_;
  Mailbox mailbox_;
  std::atomic<Ticket> next_ticket_{1};

  // The engine's thread alone.
  bool stopping_ = false;
  std::vector<Message> messages_;
  std::vector<EngineEvent> events_;  // of the step
  double step_start_s_ = 0;
  std::unordered_map<RequestId, Flight> flights_;  // submitted, not finished
  std::unordered_map<Ticket, RequestId> ids_;      // of the same
  UpdateSink take_;

  mutable std::mutex snapshot_mutex_;
  EngineSnapshot snapshot_;

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace quire::engine
