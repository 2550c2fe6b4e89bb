#include "server/http_parser.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <fmt/format.h>

#include "server/http_target.h"

namespace quire::server {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// A body that grows as it arrives. The library's own string_body reserves what Content-Length
// claims, so that a few headers would take the memory of many bodies.
struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, std::string& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, error_code& ec) { ec = {}; }

    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& ec) {
      ec = {};
      size_t bytes = 0;
      for (const boost::asio::const_buffer buffer : beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
        bytes += buffer.size();
      }
      return bytes;
    }

    void finish(error_code& ec) { ec = {}; }

   private:
    std::string& body_;
  };
};

// "0\r\n\r\n". As many bytes are to come as long as a chunked body has not ended, and the library
// (1.81) fails an assertion if it is offered the last chunk a second time in fewer.
constexpr size_t kLastChunkBytes = 5;

bool EndsLikeAVersion(std::string_view line) {
  constexpr std::string_view kShape = " HTTP/1.1";
  if (line.size() < kShape.size()) return false;
  const std::string_view end = line.substr(line.size() - kShape.size());
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return end.substr(0, 6) == kShape.substr(0, 6) && is_digit(end[6]) && end[7] == '.' &&
         is_digit(end[8]);
}

}  // namespace

class HttpParser::Impl {
 public:
  explicit Impl(const HttpOptions& limits) : limits_(limits) {
    constexpr size_t kLibraryLimitMax = std::numeric_limits<uint32_t>::max();
    parser_.header_limit(
        static_cast<uint32_t>(std::min(limits.max_header_bytes, kLibraryLimitMax)));
    parser_.body_limit(limits.max_body_bytes);
    parser_.eager(false);  // stop after the headers: they are judged before the body is read
  }

  size_t Feed(std::string_view data) {
    size_t used = 0;
    while (used < data.size() && (state_ == State::kHeader || state_ == State::kBody)) {
      const std::string_view rest = data.substr(used);
      if (is_chunked_ && state_ == State::kBody && rest.size() < kLastChunkBytes) break;
      error_code ec;
      const size_t taken = parser_.put(boost::asio::buffer(rest), ec);
      used += taken;
      if (state_ == State::kHeader) header_bytes_ += taken;
      if (ec == http::error::need_more) {
        CheckWaiting(data.substr(used));
        break;
      }
      if (ec) {
        FailWith(ec, rest);
        break;
      }
      if (state_ == State::kHeader && parser_.is_header_done()) JudgeHeader();
      if (state_ == State::kBody && parser_.is_done()) state_ = State::kComplete;
    }
    return used;
  }

  size_t body_bytes() const { return parser_.get().body().size(); }
  HttpRequest TakeRequest() {
    request_.body = std::move(parser_.get().body());
    return std::move(request_);
  }

  State state_ = State::kHeader;
  int failure_status_ = 0;
  std::string failure_message_;
  bool expects_continue_ = false;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;

 private:
  void Fail(int status, std::string message) {
    state_ = State::kFailed;
    failure_status_ = status;
    failure_message_ = std::move(message);
  }

  void FailTooLong(std::string_view waiting) {
    // A line that has not ended, of a request of which nothing has been understood, is the target.
    if (header_bytes_ == 0 && waiting.find('\n') == std::string_view::npos) {
      Fail(414,
           fmt::format("the request's target is longer than {} bytes", limits_.max_target_bytes));
    } else {
      Fail(431, fmt::format("the request's headers are longer than {} bytes together",
                            limits_.max_header_bytes));
    }
  }

  // What the parser cannot take yet must not grow without bound: headers, which it takes piece by
  // piece, the line before a chunk, and the fields after the last one.
  void CheckWaiting(std::string_view waiting) {
    const size_t before = state_ == State::kHeader ? header_bytes_ : 0;
    if (before + waiting.size() > limits_.max_header_bytes) return FailTooLong(waiting);
    // The library waits for more of a version that is too short.
    if (state_ == State::kHeader && waiting.find("\r\n\r\n") != std::string_view::npos) {
      Fail(400, "the request is not well-formed HTTP/1.1: bad version");
    }
  }

  void FailWith(error_code ec, std::string_view data) {
    if (ec == http::error::header_limit) return FailTooLong(data);
    if (ec == http::error::body_limit) {
      return Fail(413, fmt::format("the request's body is larger than {} bytes, the most that "
                                   "this server takes",
                                   limits_.max_body_bytes));
    }
    if (ec == http::error::bad_version &&
        EndsLikeAVersion(data.substr(0, std::min(data.find("\r\n"), data.size())))) {
      return Fail(505, "this server speaks HTTP/1.0 and HTTP/1.1");
    }
    Fail(400, fmt::format("the request is not well-formed HTTP/1.1: {}", ec.message()));
  }

  // The length of the body is certain from here on, or the request is refused.
  void JudgeFraming() {
    const auto& fields = parser_.get().base();
    const size_t codings = fields.count(http::field::transfer_encoding);
    if (codings == 0) return;
    is_chunked_ = true;
    if (codings > 1 || !beast::iequals(fields[http::field::transfer_encoding], "chunked")) {
      return Fail(501, "the only Transfer-Encoding that this server understands is chunked");
    }
    if (is_http_1_0_ || fields.count(http::field::content_length) > 0) {
      Fail(400,
           "Transfer-Encoding stands beside Content-Length or in HTTP/1.0; the body's end is "
           "ambiguous");
    }
  }

  void JudgeHeader() {
    const auto& message = parser_.get();
    is_http_1_0_ = message.version() == 10;
    keep_alive_ = parser_.keep_alive();
    if (header_bytes_ > limits_.max_header_bytes) return FailTooLong("\n");
    if (message.target().size() > limits_.max_target_bytes) {
      return Fail(414, fmt::format("the request's target is longer than {} bytes",
                                   limits_.max_target_bytes));
    }
    const size_t hosts = message.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && !is_http_1_0_)) {
      return Fail(400, "a request of HTTP/1.1 must have one Host header");
    }
    JudgeFraming();
    if (state_ == State::kFailed) return;
    if (const auto expect = message.find(http::field::expect);
        expect != message.end() && !is_http_1_0_) {
      if (!beast::iequals(expect->value(), "100-continue")) {
        return Fail(417, "the only expectation that this server meets is 100-continue");
      }
      expects_continue_ = true;
    }
    Result<HttpTarget> target = ParseHttpTarget({message.target().data(), message.target().size()});
    if (!target.ok()) return Fail(400, target.error().message);
    request_.method = std::string(message.method_string());
    request_.path = std::move(target->path);
    request_.query = std::move(target->query);
    // Now, not at the end: fields after the last chunk must not pass for headers.
    for (const auto& field : message) {
      request_.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    }
    state_ = State::kBody;
  }

  const HttpOptions& limits_;
  http::request_parser<GrowingBody> parser_;
  size_t header_bytes_ = 0;
  bool is_chunked_ = false;
  HttpRequest request_;
};

HttpParser::HttpParser(const HttpOptions& limits) : impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;
size_t HttpParser::Feed(std::string_view data) {
  return impl_->Feed(data);
}
HttpParser::State HttpParser::state() const {
  return impl_->state_;
}
int HttpParser::failure_status() const {
  return impl_->failure_status_;
}
const std::string& HttpParser::failure_message() const {
  return impl_->failure_message_;
}
bool HttpParser::expects_continue() const {
  return impl_->expects_continue_;
}
bool HttpParser::keep_alive() const {
  return impl_->keep_alive_;
}
bool HttpParser::is_http_1_0() const {
  return impl_->is_http_1_0_;
}
size_t HttpParser::body_bytes() const {
  return impl_->body_bytes();
}

HttpRequest HttpParser::TakeRequest() {
  return impl_->TakeRequest();
}

}  // namespace quire::server
