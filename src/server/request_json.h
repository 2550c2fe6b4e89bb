// What every reader of a client's JSON needs: the body parsed, members and faults of nested values.
// FieldReader serves flat objects.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "base/result.h"

namespace quire::server {

// kUsage where it is no JSON. Escaped halves of characters become U+FFFD.
Result<boost::json::value> ParseBody(const std::string& body);

// The client's error at `param`, such as "messages[2].content[0]".
template <typename... Args>
Error Fault(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::kUsage, fmt::format(format, std::forward<Args>(args)...),
               std::move(param)};
}

// The object's member; nullptr if missing or null.
inline const boost::json::value* FindMember(const boost::json::object& object,
                                            std::string_view key) {
  const boost::json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

}  // namespace quire::server
