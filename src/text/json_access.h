// Lookups in parsed JSON that answer "not there" and "of another type" alike, without exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::text {

// Parses a document; the error says where it is wrong. `what` names the file in messages.
Result<boost::json::value> ParseJson(std::string_view json, std::string_view what);

// The member `key` of `object`; null where `object` is no object or has no such member.
const boost::json::value* Member(const boost::json::value& object, std::string_view key);
const boost::json::array* ArrayMember(const boost::json::value& object, std::string_view key);
const boost::json::object* ObjectMember(const boost::json::value& object, std::string_view key);
std::optional<std::string_view> StringMember(const boost::json::value& object,
                                             std::string_view key);
std::optional<bool> BoolMember(const boost::json::value& object, std::string_view key);
std::optional<int64_t> AsInt(const boost::json::value& value);
std::optional<std::string_view> AsString(const boost::json::value& value);

// The member "type", which names the kind of most objects in tokenizer.json; empty where absent.
std::string_view TypeOf(const boost::json::value& object);

}  // namespace quire::text
