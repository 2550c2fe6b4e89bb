// HttpConnection: one client's connection, from accept to close: reads requests, hands them to the
// handler one after the other, and writes the answers.
//
// Owned by HttpShared::connections until it is closed, and by its pending operations. Runs on the
// I/O thread alone. A read is pending whenever there is room for what it brings, so that the end of
// the connection is noticed at any time; at most one write is.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "server/http_exchange.h"
#include "server/http_parser.h"
#include "server/http_server.h"
#include "server/http_stream.h"

namespace quire::server {

class ConnectionExchange;
class HttpConnection;

// What a server and its connections share.
struct HttpShared {
  boost::asio::io_context& io;
  HttpOptions options;
  HttpHandler handler;
  HttpStatistics statistics = {};
  // Of all requests that arrive or are worked on, wherever that is.
  std::shared_ptr<std::atomic<size_t>> body_bytes = std::make_shared<std::atomic<size_t>>(0);
  bool draining = false;  // every connection ends with the answer it owes
  std::unordered_set<std::shared_ptr<HttpConnection>> connections = {};
  // Runs when a connection has closed.
  std::function<void(const HttpConnection&)> on_close = {};
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Admission { kAdmitted, kRefused };

  HttpConnection(std::shared_ptr<HttpShared> shared, std::unique_ptr<HttpStream> stream,
                 std::string client_address, Admission admission);

  // Admitted: serves. Refused: says 503 and ends.
  void Start();
  // The client has gone, and no read is pending that would notice: it sent too much ahead.
  bool HasGoneUnnoticed() const {
    return phase_ == Phase::kAnswer && !reading_ && !read_ended_ && stream_->has_hung_up();
  }
  // A deadline has passed: CutOffLate ends what took too long.
  bool IsLate(Clock::time_point now) const {
    return now >= read_deadline_ || now >= write_deadline_;
  }
  void CutOffLate(Clock::time_point now);
  // Closes unless a request has begun to arrive or an answer is owed.
  void CloseIfIdle();
  // At once. The exchange, if any, is closed.
  void Close();

  const std::string& client_address() const { return client_address_; }
  Admission admission() const { return admission_; }

 private:
  friend class ConnectionExchange;

  enum class Phase {
    kHandshake,
    kIdle,     // no byte of a request yet
    kReceive,  // a request arrives
    kAnswer,   // the handler works on it
    kFlush,    // the answer is complete; what is queued goes out
    kLinger,  // all is written; what still arrives is dropped, so that no reset destroys the answer
    kClosed,
  };

  void StartRead();
  void OnRead(boost::system::error_code ec, size_t bytes);
  void OnReadEnd();
  void ProcessInput();
  void CountBody(size_t bytes);
  bool IsAllowedHost(const HttpRequest& request) const;
  void Reject(int status, std::string message);
  void Dispatch();

  void OnExchangeDropped();
  void Answer(HttpResponse response);
  void StartStream(HttpResponse head);
  void Send(std::string_view piece);
  void EndStream();
  void CompleteAnswer();
  std::string FramingLines(std::string_view length_or_coding) const;
  void AddCorsHeaders(HttpResponse& response) const;
  size_t bytes_queued() const { return queued_.size() + writing_.size() - written_; }

  void FlushSoon();
  void Flush();
  void WriteSome();
  void OnWritten(boost::system::error_code ec, size_t bytes);
  void OnFlushed();
  void Linger();

  const std::shared_ptr<HttpShared> shared_;
  const std::unique_ptr<HttpStream> stream_;
  const std::string client_address_;
  const Admission admission_;

  Phase phase_ = Phase::kHandshake;
  Clock::time_point read_deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();

  std::array<char, 8192> read_buffer_;
  std::string input_;     // received and not yet used
  bool reading_ = false;  // a read is pending
  bool read_ended_ = false;
  std::optional<HttpParser> parser_;  // of the request that arrives

  size_t body_bytes_ = 0;  // of the request that arrives

  // Of the request that is answered.
  ConnectionExchange* exchange_ = nullptr;  // until the answer is complete or the client gone
  bool is_head_ = false;
  bool is_http_1_0_ = false;
  bool keep_alive_ = false;
  bool continue_sent_ = false;
  bool streaming_ = false;
  std::string origin_;  // allowed one of the request; empty: none

  std::string queued_;   // to be written next
  std::string writing_;  // being written
  size_t written_ = 0;   // of writing_
  bool flush_posted_ = false;
};

}  // namespace quire::server
