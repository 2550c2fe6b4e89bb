// The target of a request, taken apart: "/v1/models/a%2Fb?limit=2" (RFC 3986, 9112 section 3.2).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quire::server {

struct HttpTarget {
  std::string path;  // decoded, valid UTF-8 without NUL; starts with '/', or is "*"
  std::vector<std::pair<std::string, std::string>> query;  // decoded likewise, in order
};

// Origin form, absolute form (scheme and authority are dropped) and "*". The fragment, which does
// not belong here, is an error, as is what is not well-formed once decoded.
Result<HttpTarget> ParseHttpTarget(std::string_view target);

}  // namespace quire::server
