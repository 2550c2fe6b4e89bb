#include "server/router.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "server/http_error.h"

namespace quire::server {
namespace {

constexpr std::string_view kIdPlaceholder = "{id}";

}  // namespace

void Router::Add(std::string_view method, std::string_view path, HttpHandler handler) {
  Methods& methods = routes_[std::string(path)];
  const bool added = methods.emplace(method, std::move(handler)).second;
  QUIRE_CHECK(added);
}

Router::Found Router::Find(std::string_view path) const {
  if (const auto exact = routes_.find(path); exact != routes_.end()) {
    return {{}, &exact->second};
  }
  Found found;
  size_t longest = 0;
  for (const auto& [pattern, methods] : routes_) {
    if (!pattern.ends_with(kIdPlaceholder)) continue;
    const size_t prefix = pattern.size() - kIdPlaceholder.size();
    if (prefix <= longest || path.size() <= prefix) continue;
    if (path.substr(0, prefix) != std::string_view(pattern).substr(0, prefix)) continue;
    longest = prefix;
    found = {path.substr(prefix), &methods};
  }
  return found;
}

void Router::Route(std::shared_ptr<Exchange> exchange) const {
  HttpRequest& request = exchange->request();
  const Found found = Find(request.path);
  if (found.methods == nullptr) {
    exchange->Respond(ErrorResponse(
        {.status = 404, .message = fmt::format("there is nothing at {}", request.path)}));
    return;
  }
  auto method = found.methods->find(request.method);
  if (method == found.methods->end() && request.method == "HEAD") {
    method = found.methods->find("GET");
  }
  if (method == found.methods->end()) {
    std::string allowed;
    for (const auto& [name, handler] : *found.methods) {
      allowed += (allowed.empty() ? "" : ", ") + name;
      if (name == "GET" && !found.methods->contains("HEAD")) allowed += ", HEAD";
    }
    exchange->Respond(ErrorResponse({.status = 405,
                                     .message = fmt::format("{} does not take {}; use {}",
                                                            request.path, request.method, allowed),
                                     .headers = {{"Allow", allowed}}}));
    return;
  }
  request.id = found.id;
  method->second(std::move(exchange));
}

}  // namespace quire::server
