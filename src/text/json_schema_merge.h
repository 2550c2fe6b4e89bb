// Two JSON schemas as one that demands what both demand: for allOf, and for keywords beside anyOf
// or $ref.
#pragma once

#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::text {

// Keywords that say nothing about which values are valid.
bool IsSchemaAnnotation(std::string_view keyword);

// kUnsupported, naming the keyword, where the two cannot simply be combined.
Result<boost::json::object> MergeSchemas(const boost::json::object& a,
                                         const boost::json::object& b);

}  // namespace quire::text
