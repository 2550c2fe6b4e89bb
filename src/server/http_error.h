// Errors as clients of the OpenAI API read them: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "server/http_exchange.h"

namespace quire::server {

struct HttpError {
  int status = 500;
  std::string message = {};
  std::string param = {};  // the field at fault; empty: null
  HttpHeaders headers = {};
};

boost::json::object ErrorBody(const HttpError& error);

HttpResponse ErrorResponse(HttpError error);

}  // namespace quire::server
