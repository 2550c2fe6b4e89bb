// The head of a response as bytes: status line and headers.
#pragma once

#include <string>
#include <string_view>

#include "server/http_exchange.h"

namespace quire::server {

// Whether a response of this status can have a body at all.
bool StatusHasBody(int status);

// `framing`: complete lines that say where the body ends and what becomes of the connection. Bytes
// of the response's own headers that would end a line become spaces.
std::string FormatResponseHead(const HttpResponse& response, std::string_view framing);

}  // namespace quire::server
