#include "server/http_format.h"

#include <ctime>

#include <boost/beast/http/status.hpp>

namespace quire::server {
namespace {

void AppendHeader(std::string_view name, std::string_view value, std::string& out) {
  out.append(name).append(": ");
  for (const char c : value) {
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    out.push_back(is_control ? ' ' : c);
  }
  out.append("\r\n");
}

// RFC 9110 section 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[40];
  const size_t size = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return std::string(text, size);
}

}  // namespace

bool StatusHasBody(int status) {
  return status >= 200 && status != 204 && status != 304;
}

std::string FormatResponseHead(const HttpResponse& response, std::string_view framing) {
  namespace http = boost::beast::http;
  const auto reason = http::obsolete_reason(http::int_to_status(response.status));
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(reason.data(), reason.size()).append("\r\n");
  AppendHeader("Date", HttpDate(), head);
  if (!response.content_type.empty()) AppendHeader("Content-Type", response.content_type, head);
  for (const HttpHeader& header : response.headers) AppendHeader(header.name, header.value, head);
  return head.append(framing).append("\r\n");
}

}  // namespace quire::server
