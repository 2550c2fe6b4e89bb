#include "server/http_connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "server/http_error.h"
#include "server/http_format.h"

namespace quire::server {
namespace {

namespace beast = boost::beast;

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = HttpConnection::Clock;

// Beyond the longest header: what a client may send ahead of the answer it waits for.
constexpr size_t kInputSlackBytes = 64 << 10;
// How long a client may take to read the last answer before the connection closes.
constexpr double kLingerSeconds = 2;
// A queue that grew for one large answer gives its memory back.
constexpr size_t kQueueKeepBytes = 64 << 10;

constexpr Clock::time_point kNever = Clock::time_point::max();

Clock::time_point After(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

// The exchange that a connection hands out. Either side may go first: each clears the other's
// pointer.
class ConnectionExchange : public Exchange {
 public:
  ConnectionExchange(HttpRequest request, HttpConnection* connection)
      : Exchange(std::move(request)), shared_(connection->shared_), connection_(connection) {
    ++shared_->statistics.exchanges_open;
  }
  ~ConnectionExchange() override {
    --shared_->statistics.exchanges_open;
    if (connection_ != nullptr) connection_->OnExchangeDropped();
  }

  void Respond(HttpResponse response) override {
    if (connection_ != nullptr && !connection_->streaming_) {
      connection_->Answer(std::move(response));
    }
  }
  void StartStream(HttpResponse head) override {
    if (connection_ != nullptr) connection_->StartStream(std::move(head));
  }
  void Send(std::string_view piece) override {
    if (connection_ != nullptr) connection_->Send(piece);
  }
  void EndStream() override {
    if (connection_ != nullptr) connection_->EndStream();
  }
  void Abort() override {
    if (connection_ != nullptr) connection_->Close();
  }
  void OnClosed(std::function<void()> callback) override {
    // The old one goes with the parameter, at the end: it may hold the last reference to this.
    on_closed_.swap(callback);
    if (closed_) RunOnClosed();
  }
  bool closed() const override { return closed_; }
  size_t bytes_queued() const override {
    return connection_ != nullptr ? connection_->bytes_queued() : 0;
  }

  // The answer is complete. With the callback the last reference to this may go.
  void Detach() {
    connection_ = nullptr;
    const std::function<void()> dropped = std::exchange(on_closed_, nullptr);
  }
  // The client is gone.
  void SetClosed() {
    connection_ = nullptr;
    closed_ = true;
    RunOnClosed();
  }

 private:
  void RunOnClosed() {
    if (on_closed_) asio::post(shared_->io, std::exchange(on_closed_, nullptr));
  }

  const std::shared_ptr<HttpShared> shared_;
  HttpConnection* connection_;
  bool closed_ = false;
  std::function<void()> on_closed_;
};

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared,
                               std::unique_ptr<HttpStream> stream, std::string client_address,
                               Admission admission)
    : shared_(std::move(shared)),
      stream_(std::move(stream)),
      client_address_(std::move(client_address)),
      admission_(admission) {}

void HttpConnection::Start() {
  // Also the time in which the first byte must come.
  read_deadline_ = After(shared_->options.header_timeout_s);
  stream_->Handshake([self = shared_from_this()](error_code ec) {
    if (self->phase_ == Phase::kClosed) return;
    if (ec) return self->Close();
    self->phase_ = Phase::kIdle;
    if (self->admission_ == Admission::kRefused) {
      self->Answer(ErrorResponse({.status = 503,
                                  .message = "the server has as many connections as it allows; "
                                             "try again later",
                                  .headers = {{"Retry-After", "1"}}}));
    }
    self->StartRead();
  });
}

void HttpConnection::CutOffLate(Clock::time_point now) {
  const bool reads_too_slowly = now >= write_deadline_;
  if (phase_ == Phase::kReceive && !reads_too_slowly) {
    return Reject(408, "the request did not arrive in time");
  }
  if (reads_too_slowly) ++shared_->statistics.slow_readers_cut_off;
  Close();
}

void HttpConnection::CloseIfIdle() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kHandshake) Close();
}

void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  const bool is_incomplete = exchange_ != nullptr || bytes_queued() > 0;
  phase_ = Phase::kClosed;
  read_deadline_ = write_deadline_ = kNever;
  stream_->Close(is_incomplete ? HttpStream::CloseMode::kReset : HttpStream::CloseMode::kOrderly);
  parser_.reset();
  CountBody(0);
  shared_->connections.erase(self);
  shared_->on_close(*this);
  if (exchange_ != nullptr) {
    ++shared_->statistics.clients_gone;
    std::exchange(exchange_, nullptr)->SetClosed();
  }
}

void HttpConnection::StartRead() {
  const bool has_room = input_.size() < shared_->options.max_header_bytes + kInputSlackBytes;
  if (reading_ || read_ended_ || phase_ == Phase::kClosed || !has_room) return;
  reading_ = true;
  stream_->ReadSome(
      asio::buffer(read_buffer_),
      [self = shared_from_this()](error_code ec, size_t bytes) { self->OnRead(ec, bytes); });
}

void HttpConnection::OnRead(error_code ec, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (ec) return OnReadEnd();
  shared_->statistics.bytes_received += bytes;
  if (phase_ != Phase::kLinger) {
    input_.append(read_buffer_.data(), bytes);
    ProcessInput();
  }
  StartRead();
}

void HttpConnection::OnReadEnd() {
  read_ended_ = true;
  // A client may end its side behind its last request and still read the answer, if that is
  // complete. One that ends it while the answer is computed is taken to have gone: that is what
  // closing a connection looks like from here.
  if (phase_ != Phase::kFlush) Close();
}

void HttpConnection::ProcessInput() {
  if (input_.empty() || (phase_ != Phase::kIdle && phase_ != Phase::kReceive)) return;
  if (phase_ == Phase::kIdle) {
    phase_ = Phase::kReceive;
    parser_.emplace(shared_->options);
    read_deadline_ = After(shared_->options.header_timeout_s);
    continue_sent_ = false;
  }
  const HttpParser::State before = parser_->state();
  input_.erase(0, parser_->Feed(input_));
  CountBody(parser_->body_bytes());
  if (body_bytes_ > 0 && *shared_->body_bytes > shared_->options.max_bodies_bytes) {
    return Reject(503, "the server holds as many bytes of requests as it allows; try again later");
  }
  switch (parser_->state()) {
    case HttpParser::State::kHeader:
      return;
    case HttpParser::State::kBody:
      if (before == HttpParser::State::kHeader) {
        read_deadline_ = After(shared_->options.body_timeout_s);
      }
      if (parser_->expects_continue() && !std::exchange(continue_sent_, true)) {
        queued_ += "HTTP/1.1 100 Continue\r\n\r\n";
        FlushSoon();
      }
      return;
    case HttpParser::State::kFailed:
      return Reject(parser_->failure_status(), parser_->failure_message());
    case HttpParser::State::kComplete:
      return Dispatch();
  }
}

// The body under way is so large now.
void HttpConnection::CountBody(size_t bytes) {
  *shared_->body_bytes += bytes - body_bytes_;
  body_bytes_ = bytes;
}

bool HttpConnection::IsAllowedHost(const HttpRequest& request) const {
  const std::vector<std::string>& allowed = shared_->options.allowed_hosts;
  const auto header = request.Header("Host");
  if (allowed.empty() || !header) return true;
  std::string_view host = *header;
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    host = host.substr(0, colon);
  }
  return std::ranges::any_of(allowed,
                             [&](const std::string& name) { return beast::iequals(name, host); });
}

void HttpConnection::Reject(int status, std::string message) {
  ++shared_->statistics.requests_rejected;
  parser_.reset();
  CountBody(0);
  keep_alive_ = is_head_ = false;
  origin_.clear();
  Answer(ErrorResponse({.status = status, .message = std::move(message)}));
}

void HttpConnection::Dispatch() {
  HttpRequest request = parser_->TakeRequest();
  request.client_address = client_address_;
  request.body_charge = std::shared_ptr<const void>(
      nullptr, [total = shared_->body_bytes, bytes = std::exchange(body_bytes_, 0)](const void*) {
        *total -= bytes;
      });
  keep_alive_ = parser_->keep_alive();
  is_http_1_0_ = parser_->is_http_1_0();
  parser_.reset();
  is_head_ = request.method == "HEAD";
  streaming_ = false;
  origin_.clear();
  phase_ = Phase::kAnswer;
  read_deadline_ = kNever;
  ++shared_->statistics.requests;
  if (!IsAllowedHost(request)) {
    return Answer(ErrorResponse(
        {.status = 403,
         .message = fmt::format("this server does not answer for the host '{:.100}'; start it with "
                                "--allowed-host to allow that",
                                *request.Header("Host"))}));
  }
  if (const auto origin = request.Header("Origin")) {
    const std::vector<std::string>& allowed = shared_->options.allowed_origins;
    const bool is_allowed = std::any_of(allowed.begin(), allowed.end(), [&](const auto& entry) {
      return entry == "*" || entry == *origin;
    });
    if (is_allowed) origin_ = *origin;
    if (is_allowed && request.method == "OPTIONS" &&
        request.Header("Access-Control-Request-Method")) {
      HttpResponse response{.status = 204, .content_type = ""};
      response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                          {"Access-Control-Max-Age", "600"}};
      if (const auto wanted = request.Header("Access-Control-Request-Headers")) {
        response.headers.push_back({"Access-Control-Allow-Headers", std::string(*wanted)});
      }
      return Answer(std::move(response));
    }
  }
  auto exchange = std::make_shared<ConnectionExchange>(std::move(request), this);
  exchange_ = exchange.get();
  shared_->handler(std::move(exchange));
}

void HttpConnection::OnExchangeDropped() {
  exchange_ = nullptr;
  if (streaming_) return Close();
  Answer(ErrorResponse({.status = 500, .message = "the server gave no answer to this request"}));
}

std::string HttpConnection::FramingLines(std::string_view length_or_coding) const {
  std::string lines(length_or_coding);
  if (!keep_alive_) {
    lines += "Connection: close\r\n";
  } else if (is_http_1_0_) {
    lines += "Connection: keep-alive\r\n";
  }
  return lines;
}

void HttpConnection::AddCorsHeaders(HttpResponse& response) const {
  if (!shared_->options.allowed_origins.empty()) response.headers.push_back({"Vary", "Origin"});
  if (!origin_.empty()) response.headers.push_back({"Access-Control-Allow-Origin", origin_});
}

void HttpConnection::Answer(HttpResponse response) {
  AddCorsHeaders(response);
  const bool has_body = StatusHasBody(response.status);
  const std::string length =
      has_body ? fmt::format("Content-Length: {}\r\n", response.body.size()) : "";
  keep_alive_ = keep_alive_ && !shared_->draining;
  queued_ += FormatResponseHead(response, FramingLines(length));
  if (has_body && !is_head_) queued_ += response.body;
  CompleteAnswer();
}

void HttpConnection::StartStream(HttpResponse head) {
  if (streaming_) return;
  QUIRE_CHECK(head.body.empty());
  AddCorsHeaders(head);
  streaming_ = true;
  keep_alive_ = keep_alive_ && !is_http_1_0_ && !shared_->draining;
  queued_ +=
      FormatResponseHead(head, FramingLines(is_http_1_0_ ? "" : "Transfer-Encoding: chunked\r\n"));
  FlushSoon();
}

void HttpConnection::Send(std::string_view piece) {
  // An empty chunk would be the end of the stream.
  if (!streaming_ || is_head_ || piece.empty()) return;
  // Judged before the piece is queued: one piece may be larger than the bound.
  if (bytes_queued() > shared_->options.max_queued_bytes) {
    ++shared_->statistics.slow_readers_cut_off;
    return Close();
  }
  if (is_http_1_0_) {
    queued_ += piece;
  } else {
    fmt::format_to(std::back_inserter(queued_), "{:x}\r\n", piece.size());
    queued_.append(piece).append("\r\n");
  }
  FlushSoon();
}

void HttpConnection::EndStream() {
  if (!streaming_) return;
  if (!is_http_1_0_ && !is_head_) queued_ += "0\r\n\r\n";
  CompleteAnswer();
}

void HttpConnection::CompleteAnswer() {
  if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->Detach();
  streaming_ = false;
  phase_ = Phase::kFlush;
  read_deadline_ = kNever;
  FlushSoon();
}

// Not at once: what is queued in the same turn of the loop then goes out in the same write.
void HttpConnection::FlushSoon() {
  if (std::exchange(flush_posted_, true)) return;
  asio::post(shared_->io, [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

void HttpConnection::Flush() {
  if (phase_ == Phase::kClosed || !writing_.empty()) return;
  if (queued_.empty()) {
    if (phase_ == Phase::kFlush) OnFlushed();
    return;
  }
  std::swap(writing_, queued_);
  written_ = 0;
  WriteSome();
}

void HttpConnection::WriteSome() {
  write_deadline_ = After(shared_->options.write_timeout_s);
  stream_->WriteSome(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](error_code ec, size_t bytes) { self->OnWritten(ec, bytes); });
}

void HttpConnection::OnWritten(error_code ec, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (ec) return Close();
  shared_->statistics.bytes_sent += bytes;
  written_ += bytes;
  if (written_ < writing_.size()) return WriteSome();
  write_deadline_ = kNever;
  writing_.clear();
  written_ = 0;
  if (writing_.capacity() > kQueueKeepBytes) writing_.shrink_to_fit();
  Flush();
}

void HttpConnection::OnFlushed() {
  if (!keep_alive_ || shared_->draining || read_ended_) return Linger();
  phase_ = Phase::kIdle;
  read_deadline_ = After(shared_->options.idle_timeout_s);
  ProcessInput();
  StartRead();
}

void HttpConnection::Linger() {
  if (read_ended_) return Close();
  phase_ = Phase::kLinger;
  read_deadline_ = After(kLingerSeconds);
  input_.clear();
  stream_->EndWriting([self = shared_from_this()](error_code) {});
  StartRead();
}

}  // namespace quire::server
