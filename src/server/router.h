// Router: finds the handler of a request by method and path.
//
// A path matches exactly, or by its beginning where the route ends in "{id}": /v1/models/{id}
// takes all of the rest, slashes too (names of models have them), and puts it into request().id.
// Exact routes win, then the longest beginning. HEAD is answered by the handler of GET. What no
// route takes is answered with 404, a known path under another method with 405 and Allow.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_exchange.h"

namespace quire::server {

class Router {
 public:
  // Each pair of method and path once.
  void Add(std::string_view method, std::string_view path, HttpHandler handler);

  // Calls the handler, or answers with the error.
  void Route(std::shared_ptr<Exchange> exchange) const;

 private:
  using Methods = std::map<std::string, HttpHandler, std::less<>>;
  struct Found {
    std::string_view id;
    const Methods* methods = nullptr;
  };
  Found Find(std::string_view path) const;

  std::map<std::string, Methods, std::less<>> routes_;  // by pattern
};

}  // namespace quire::server
