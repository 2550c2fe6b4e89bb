#include "engine/engine_thread.h"

#include <utility>

#include "base/clock.h"

namespace quire::engine {

EngineThread::EngineThread(std::unique_ptr<Engine> engine, Metrics& metrics, Deliver deliver)
    : engine_(std::move(engine)), metrics_(metrics), deliver_(std::move(deliver)) {
  take_ = [this](const SequenceUpdate& update) { Take(update); };
  Publish();
  thread_ = std::thread([this] { Loop(); });
}

EngineThread::~EngineThread() {
  mailbox_.Post(StopMessage{});
  thread_.join();
}

Ticket EngineThread::Submit(sched::Request request) {
  const Ticket ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
  mailbox_.Post(SubmitMessage{ticket, std::move(request), base::MonotonicSeconds()});
  return ticket;
}

void EngineThread::Cancel(Ticket ticket) {
  mailbox_.Post(CancelMessage{ticket});
}

void EngineThread::Visit(std::function<void(Engine&)> visit) {
  mailbox_.Post(VisitMessage{std::move(visit)});
}

EngineSnapshot EngineThread::snapshot() const {
  const std::scoped_lock lock(snapshot_mutex_);
  return snapshot_;
}

void EngineThread::Loop() {
  while (true) {
    DrainMailbox();
    if (stopping_) return;
    step_start_s_ = base::MonotonicSeconds();
    if (engine_->Step(take_)) NoteAdmissions();
    Publish();
    if (!events_.empty()) deliver_(std::exchange(events_, {}));
  }
}

// Waits where there is nothing else to do.
void EngineThread::DrainMailbox() {
  if (engine_->idle()) {
    mailbox_.Await(messages_);
  } else {
    mailbox_.Take(messages_);
  }
  for (Message& message : messages_) {
    std::visit([&](auto& one) { Handle(one); }, message);
  }
}

void EngineThread::Handle(SubmitMessage& message) {
  const int prompt_tokens = static_cast<int>(message.request.prompt.size());
  // Beam search tells of the best n alone.
  const int sequences =
      message.request.beam_search ? message.request.n : message.request.sequences();
  const Result<RequestId> id = engine_->Submit(std::move(message.request));
  if (!id.ok()) {
    metrics_.Refused();
    events_.push_back({message.ticket, id.error()});
    return;
  }
  Flight& flight = flights_[*id];
  flight = Flight();
  flight.ticket = message.ticket;
  flight.times.posted_s = message.posted_s;
  flight.times.prompt_tokens = prompt_tokens;
  flight.sequences_left = sequences;
  ids_[message.ticket] = *id;
}

void EngineThread::Handle(CancelMessage& message) {
  const auto found = ids_.find(message.ticket);
  if (found == ids_.end()) return;
  engine_->Cancel(found->second);
  const Flight& flight = flights_[found->second];
  // Whoever hears of a failure has no use for the rest.
  metrics_.Finished(flight.failed ? sched::FinishReason::kError : sched::FinishReason::kCancelled,
                    flight.times, base::MonotonicSeconds());
  flights_.erase(found->second);
  ids_.erase(found);
}

void EngineThread::Handle(VisitMessage& message) {
  message.visit(*engine_);
}

void EngineThread::Handle(StopMessage&) {
  stopping_ = true;
}

void EngineThread::NoteAdmissions() {
  const sched::Scheduler& scheduler = engine_->scheduler();
  for (const SequenceId id : scheduler.plan().admitted) {
    const auto found = flights_.find(scheduler.sequence(id).request);
    if (found == flights_.end()) continue;  // finished in this very step
    RequestTimes& times = found->second.times;
    if (!times.admitted_s) times.admitted_s = step_start_s_;
  }
}

void EngineThread::Take(const SequenceUpdate& update) {
  const auto found = flights_.find(update.request);
  if (found == flights_.end()) return;  // cancelled
  Flight& flight = found->second;
  const double now = base::MonotonicSeconds();
  if (!flight.times.admitted_s) flight.times.admitted_s = step_start_s_;
  metrics_.Generated(flight.times, update.index, static_cast<int>(update.tokens.size()), now);
  events_.push_back({flight.ticket, update});
  flight.failed |= update.finish == sched::FinishReason::kError;
  if (!update.finish || --flight.sequences_left > 0) return;
  metrics_.Finished(flight.failed ? sched::FinishReason::kError : *update.finish, flight.times,
                    now);
  ids_.erase(flight.ticket);
  flights_.erase(found);
}

void EngineThread::Publish() {
  const std::scoped_lock lock(snapshot_mutex_);
  snapshot_ = {engine_->scheduler().stats(), engine_->scheduler().cache().stats(), engine_->stats(),
               engine_->speculation()};
}

}  // namespace quire::engine
