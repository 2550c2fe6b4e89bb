// Any bytes as what a client or an operator hands in: a request in pieces, a target, a file of API
// keys. Limits hold, and what is accepted is what it promises to be.
#include <cstddef>
#include <cstdint>
#include <string>

#include "server/api_keys.h"
#include "server/http_parser.h"
#include "server/http_target.h"
#include "text/utf8.h"

namespace {

using quire::server::HttpParser;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

void ParseRequests(std::string_view text, size_t piece_bytes) {
  static const quire::server::HttpOptions limits{
      .max_body_bytes = 64, .max_header_bytes = 256, .max_target_bytes = 32};
  HttpParser parser(limits);
  std::string input;
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    input += text.substr(at, piece_bytes);
    input.erase(0, parser.Feed(input));
    if (parser.state() == HttpParser::State::kFailed) {
      Require(parser.failure_status() >= 400 && !parser.failure_message().empty());
      return;
    }
    if (parser.state() == HttpParser::State::kComplete) break;
    // What waits to be understood is bounded, however long the request.
    Require(input.size() <= limits.max_header_bytes);
  }
  if (parser.state() != HttpParser::State::kComplete) return;
  const quire::server::HttpRequest request = parser.TakeRequest();
  Require(request.body.size() <= limits.max_body_bytes);
  Require(!request.path.empty() && quire::text::IsValidUtf8(request.path));
  Require(request.path.find('\0') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ParseRequests(text, 1 + data[0] % 64);
  if (const auto target = quire::server::ParseHttpTarget(text); target.ok()) {
    Require(target->path == "*" || target->path.front() == '/');
    for (const auto& [name, value] : target->query) {
      Require(quire::text::IsValidUtf8(name) && quire::text::IsValidUtf8(value));
    }
  }
  if (const auto keys = quire::server::ApiKeys::Create({}, text); keys.ok()) {
    quire::server::HttpRequest request;
    request.headers = {{"x-api-key", std::string(text)}};
    Require(keys->empty() || text.find('\n') == std::string_view::npos ||
            !keys->Authenticate(request));
  }
  return 0;
}
