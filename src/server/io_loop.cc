#include "server/io_loop.h"

#include <chrono>
#include <csignal>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

namespace quire::server {
namespace asio = boost::asio;

namespace {
constexpr size_t kWorkers = 4;
}  // namespace

struct IoLoop::Impl {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  asio::thread_pool workers{kWorkers};
  asio::signal_set signals{io};
  std::function<void()> on_signal;

  void AwaitSignal() {
    signals.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      on_signal();
      AwaitSignal();
    });
  }
};

IoLoop::IoLoop() : impl_(std::make_unique<Impl>()) {}

IoLoop::~IoLoop() {
  Stop();
}

asio::io_context& IoLoop::context() {
  return impl_->io;
}

void IoLoop::Post(std::function<void()> task) {
  asio::post(impl_->io, std::move(task));
}

void IoLoop::PostAfter(double seconds, std::function<void()> task) {
  auto timer = std::make_shared<asio::steady_timer>(
      impl_->io, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
  timer->async_wait([timer, task = std::move(task)](const boost::system::error_code& error) {
    if (!error) task();
  });
}

void IoLoop::PostToWorker(std::function<void()> task) {
  asio::post(impl_->workers, std::move(task));
}

void IoLoop::OnSignal(std::function<void()> task) {
  impl_->on_signal = std::move(task);
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->AwaitSignal();
}

void IoLoop::Run() {
  impl_->io.run();
}

void IoLoop::Stop() {
  impl_->io.stop();
  impl_->workers.stop();
  impl_->workers.join();
}

}  // namespace quire::server
