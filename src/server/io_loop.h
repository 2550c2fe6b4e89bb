// IoLoop: the I/O thread's event loop, and worker threads beside it for what may take a while
// (parsing a body, rendering a template, encoding a long prompt), so that no request keeps the
// connections of others waiting, and a slow one not the next.
//
// Post from any thread; tasks run on the thread that runs the loop, in order, or on a worker, begun
// in order. Stop waits for those under way.
#pragma once

#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace quire::server {

class IoLoop {
 public:
  IoLoop();
  ~IoLoop();
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  boost::asio::io_context& context();

  void Post(std::function<void()> task);
  void PostAfter(double seconds, std::function<void()> task);
  void PostToWorker(std::function<void()> task);

  // Calls `task` on the I/O thread at each SIGINT and SIGTERM, in place of dying.
  void OnSignal(std::function<void()> task);

  // Runs the loop on this thread until Stop.
  void Run();
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
