// HttpParser: one request out of bytes as they arrive, within limits. Owns what it has read so far
// and does no I/O; a connection makes one for each request.
//
// Strict where leniency lets two readers disagree on where a request ends (RFC 9112 section 6.3):
// Content-Length beside Transfer-Encoding, contradictory lengths, and transfer codings other than
// chunked are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_exchange.h"
#include "server/http_server.h"

namespace quire::server {

class HttpParser {
 public:
  enum class State { kHeader, kBody, kComplete, kFailed };

  explicit HttpParser(const HttpOptions& limits);  // which must outlive it
  ~HttpParser();

  // Takes as much from the front of `data` as it can and returns how many bytes that were. The rest
  // belongs to the next request if this one is complete, or is offered again with more behind it.
  size_t Feed(std::string_view data);

  State state() const;

  // kFailed: what the client is told. Where the request ends is not known then.
  int failure_status() const;
  const std::string& failure_message() const;

  // From kBody on.
  bool expects_continue() const;  // the client waits for "100 Continue" before it sends the body
  bool keep_alive() const;        // the client wants to use the connection again
  bool is_http_1_0() const;

  size_t body_bytes() const;  // so far

  // kComplete: the request, once.
  HttpRequest TakeRequest();

 private:
  class Impl;  // the parser of the library, and its heavy headers
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
