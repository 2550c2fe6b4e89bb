#include "server/request_json.h"

#include <optional>

namespace quire::server {
namespace json = boost::json;
namespace {

constexpr size_t kDepthMax = 128;

// The code unit that "\uXXXX" at `at` stands for; nullopt: there is no such escape.
std::optional<unsigned> EscapedUnit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  unsigned unit = 0;
  for (const char c : text.substr(at + 2, 4)) {
    const unsigned digit = c >= '0' && c <= '9'   ? c - '0'
                           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                  : 16;
    if (digit == 16) return std::nullopt;
    unit = unit * 16 + digit;
  }
  return unit;
}

bool IsHighSurrogate(std::optional<unsigned> unit) {
  return unit && *unit >= 0xd800 && *unit < 0xdc00;
}
bool IsLowSurrogate(std::optional<unsigned> unit) {
  return unit && *unit >= 0xdc00 && *unit < 0xe000;
}

// Halves of characters, which JavaScript sends where it cut a text within one, become U+FFFD.
std::string WithoutLoneSurrogates(std::string text) {
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    if (text[at] != '\\') continue;
    const std::optional<unsigned> unit = EscapedUnit(text, at);
    if (IsHighSurrogate(unit) && IsLowSurrogate(EscapedUnit(text, at + 6))) {
      at += 11;
    } else if (IsHighSurrogate(unit) || IsLowSurrogate(unit)) {
      text.replace(at + 2, 4, "fffd");
      at += 5;
    } else {
      ++at;  // whatever is escaped is no backslash of its own
    }
  }
  return text;
}

}  // namespace

Result<json::value> ParseBody(const std::string& body) {
  // A schema may nest; the default is 32.
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::error_code code;
  json::value value = json::parse(body, code, {}, options);
  if (code && body.find("\\u") != std::string::npos) {
    code.clear();
    value = json::parse(WithoutLoneSurrogates(body), code, {}, options);
  }
  if (code) return MakeError(ErrorKind::kUsage, "the body is no JSON: {}", code.message());
  return value;
}

}  // namespace quire::server
