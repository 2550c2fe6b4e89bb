#include "server/http_error.h"

#include <utility>

#include <boost/json.hpp>

#include "text/utf8.h"

namespace quire::server {

boost::json::object ErrorBody(const HttpError& error) {
  const char* type = error.status >= 500   ? "server_error"
                     : error.status == 429 ? "rate_limit_error"
                                           : "invalid_request_error";
  const boost::json::value param =
      error.param.empty() ? boost::json::value(nullptr) : boost::json::value(error.param);
  return {{"error",
           {{"message", text::ToValidUtf8(error.message)},
            {"type", type},
            {"param", param},
            {"code", error.status}}}};
}

HttpResponse ErrorResponse(HttpError error) {
  HttpResponse response;
  response.status = error.status;
  response.body = boost::json::serialize(ErrorBody(error));
  response.headers = std::move(error.headers);
  return response;
}

}  // namespace quire::server
