// One HTTP request and its answer, as the code that computes answers sees them.
//
// Everything here belongs to the I/O thread: an Exchange is called, and its last reference given
// up, on that thread only. An answer is either one Respond, or StartStream, any number of Send, and
// EndStream. Every call is safe at any time: after the client has gone, or after the answer is
// complete, calls do nothing. Whoever holds the Exchange owes the answer: the last reference given
// up without one sends a 500, or cuts the stream off so that the client sees that it is incomplete.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::server {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HttpHeaders = std::vector<HttpHeader>;

// The first value under `name` (compared without case); nullopt: there is none.
std::optional<std::string_view> FindHeader(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;                                      // as sent: "GET"
  std::string path;                                        // percent-decoded, valid UTF-8
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  HttpHeaders headers;                                     // in order
  std::string body;                                        // any bytes
  std::string client_address;                              // without port: "127.0.0.1"
  std::string id;  // what {id} in the route's path stands for; set by Router
  // Counts the body among those that the server holds (HttpOptions::max_bodies_bytes) for as long
  // as a copy of this lives.
  std::shared_ptr<const void> body_charge = {};

  std::optional<std::string_view> Header(std::string_view name) const {
    return FindHeader(headers, name);
  }
  // The first value under `name` in the query.
  std::optional<std::string_view> Query(std::string_view name) const;
};

// Content-Length, Transfer-Encoding, Connection and the CORS headers are the connection's to write.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: none is sent
  std::string body = {};
  HttpHeaders headers = {};
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  const HttpRequest& request() const { return request_; }
  HttpRequest& request() { return request_; }  // for the router, and to move the body out

  // The whole answer at once.
  virtual void Respond(HttpResponse response) = 0;

  // An answer of unknown length: its status and headers go out at once (`body` must be empty).
  // Chunked for HTTP/1.1; for HTTP/1.0 the end of the connection is the end of the answer.
  virtual void StartStream(HttpResponse head) = 0;
  // Queues a piece of the stream. Pieces that wait while the socket is busy, or that are sent in
  // one turn of the I/O loop, go out in one write. A client that lets more than
  // HttpOptions::max_queued_bytes wait is cut off: the exchange is closed.
  virtual void Send(std::string_view piece) = 0;
  virtual void EndStream() = 0;

  // Cuts the connection: what was streamed is not the whole answer, and the client must see that.
  virtual void Abort() = 0;

  // `callback` runs once, from the I/O loop and never inside a call of this class, if the client
  // goes away (or is cut off) before the answer is complete; also if it has gone already.
  // A complete answer drops the callback. A later call replaces it.
  virtual void OnClosed(std::function<void()> callback) = 0;

  // The client is gone: whatever is still sent reaches nobody.
  virtual bool closed() const = 0;
  // Bytes of this answer that the system has not taken yet.
  virtual size_t bytes_queued() const = 0;

 protected:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}

 private:
  HttpRequest request_;
};

// Runs on the I/O thread once a request is complete.
using HttpHandler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace quire::server
