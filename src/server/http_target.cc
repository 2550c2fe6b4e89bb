#include "server/http_target.h"

#include <optional>

#include "text/utf8.h"

namespace quire::server {
namespace {

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

enum class Plus { kPlus, kSpace };  // what '+' stands for: forms write a space so

Result<std::string> PercentDecode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const auto high = i + 1 < text.size() ? HexDigit(text[i + 1]) : std::nullopt;
      const auto low = i + 2 < text.size() ? HexDigit(text[i + 2]) : std::nullopt;
      if (!high || !low) {
        return MakeError(ErrorKind::kInvalid,
                         "the request's target has a '%' without two hexadecimal digits");
      }
      c = static_cast<char>(*high * 16 + *low);
      i += 2;
    } else if (c == '+' && plus == Plus::kSpace) {
      c = ' ';
    }
    if (c == '\0') {
      return MakeError(ErrorKind::kInvalid, "the request's target has a NUL byte");
    }
    out.push_back(c);
  }
  if (!text::IsValidUtf8(out)) {
    return MakeError(ErrorKind::kInvalid, "the request's target is not UTF-8 once decoded");
  }
  return out;
}

// Without "http://host"; nullopt: not an absolute form.
std::optional<std::string_view> PathOfAbsoluteForm(std::string_view target) {
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t slash = target.find_first_of("/?", scheme.size());
    return slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return std::nullopt;
}

}  // namespace

Result<HttpTarget> ParseHttpTarget(std::string_view target) {
  if (target == "*") return HttpTarget{"*", {}};
  const auto absolute = PathOfAbsoluteForm(target);
  if (absolute) target = *absolute;
  const size_t question = target.find('?');
  std::string_view path = target.substr(0, question);
  if (path.empty() && absolute) path = "/";
  if (path.empty() || path.front() != '/' || target.find('#') != std::string_view::npos) {
    return MakeError(ErrorKind::kInvalid,
                     "the request's target is not a path; it must start with '/'");
  }
  HttpTarget result;
  QUIRE_ASSIGN_OR_RETURN(result.path, PercentDecode(path, Plus::kPlus));
  if (question == std::string_view::npos) return result;
  std::string_view query = target.substr(question + 1);
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    QUIRE_ASSIGN_OR_RETURN(std::string name, PercentDecode(pair.substr(0, equals), Plus::kSpace));
    std::string value;
    if (equals != std::string_view::npos) {
      QUIRE_ASSIGN_OR_RETURN(value, PercentDecode(pair.substr(equals + 1), Plus::kSpace));
    }
    result.query.emplace_back(std::move(name), std::move(value));
  }
  return result;
}

}  // namespace quire::server
