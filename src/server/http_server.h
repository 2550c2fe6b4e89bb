// HTTP/1.1 over TCP or TLS: listens, and turns connections into Exchanges for one handler. Knows
// nothing of what is served.
//
// Belongs to the thread that runs the io_context: every call is made there (or before it runs).
// Connections cost no thread. Requests of one connection are answered one after the other, in
// order; what a client sends ahead is buffered up to a bound, and then no longer read. While an
// answer is computed the connection is read on, so that a client that goes away is noticed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http_exchange.h"

namespace boost::asio {
class io_context;
}

namespace quire::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;           // 0: the system chooses
  std::string ssl_certfile = {};  // PEM, the chain; with ssl_keyfile: TLS 1.2 or newer
  std::string ssl_keyfile = {};   // PEM

  size_t max_body_bytes = 32 << 20;
  size_t max_bodies_bytes = 512 << 20;  // of all requests that arrive or wait for their answer
  size_t max_header_bytes = 32 << 10;   // request line and headers together
  size_t max_target_bytes = 8 << 10;
  size_t max_queued_bytes = 4 << 20;  // of one stream, waiting for a slow reader

  double header_timeout_s = 10;  // from a request's first byte to the end of its headers
  double body_timeout_s = 60;    // from there to the end of its body
  double idle_timeout_s = 75;    // between two requests of a connection
  double write_timeout_s = 60;   // without the client taking a byte of what waits for it

  int max_connections = 2000;
  int max_connections_per_address = 0;  // 0: no such limit

  // Requests must name one of these hosts (the Host header without its port); empty: any. What
  // listens at this machine alone is so kept from web pages whose name was made to point to it.
  std::vector<std::string> allowed_hosts = {};
  // Web pages of these origins ("https://a.example", or "*") may read answers (CORS).
  std::vector<std::string> allowed_origins = {};
};

struct HttpStatistics {
  int connections_open = 0;
  int exchanges_open = 0;  // Exchange objects alive
  uint64_t connections_accepted = 0;
  uint64_t connections_refused = 0;  // beyond max_connections
  uint64_t requests = 0;             // handed to the handler
  uint64_t requests_rejected = 0;    // malformed, too large or too slow
  uint64_t clients_gone = 0;         // before their answer was complete
  uint64_t slow_readers_cut_off = 0;
  uint64_t bytes_received = 0;  // before TLS, as all below
  uint64_t bytes_sent = 0;
};

class HttpServer {
 public:
  // `io` must outlive the server.
  HttpServer(boost::asio::io_context& io, HttpOptions options, HttpHandler handler);
  ~HttpServer();  // as CloseAll

  // Binds and starts to accept. Fails with one sentence: a bad address, a port in use, a
  // certificate or key that cannot be used.
  Status Listen();

  uint16_t port() const;  // the real one, once Listen has succeeded

  // Graceful end: stop accepting; close connections that wait for a request, and from now on every
  // other one after its answer; cut off what is left.
  void StopAccepting();
  void CloseIdle();
  void CloseAll();

  const HttpStatistics& statistics() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace quire::server
