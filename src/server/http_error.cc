#include "server/http_error.h"

#include <utility>

#include <boost/json.hpp>

#include "text/utf8.h"

namespace quire::server {

HttpResponse ErrorResponse(HttpError error) {
  const boost::json::value param =
      error.param.empty() ? boost::json::value(nullptr) : boost::json::value(error.param);
  const boost::json::object body = {
      {"error",
       {{"message", text::ToValidUtf8(error.message)},
        {"type", error.status >= 500 ? "server_error" : "invalid_request_error"},
        {"param", param},
        {"code", error.status}}}};
  HttpResponse response;
  response.status = error.status;
  response.body = boost::json::serialize(body);
  response.headers = std::move(error.headers);
  return response;
}

}  // namespace quire::server
