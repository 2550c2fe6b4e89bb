// A request's `kv_policy`: which of its tokens keep their keys and values.
//
//     {"policy": "h2o", "budget": 512}          tokens; up to 1 a share of the prompt
//     {"policy": "streaming", "budget": 1024, "sinks": 4, "pin_prefix_tokens": 200}
//     {"policy": "none"}                        everything, whatever the server's default
//
// Also: "recent", "heavy_hitters" ("sum" or "sum_per_query"), "observed_queries" and
// "pooled_neighbours" (kv/eviction.h says what they are).
#pragma once

#include <boost/json.hpp>

#include "base/result.h"
#include "kv/eviction.h"

namespace quire::server {

// kUsage with one sentence if it is no policy.
Result<kv::EvictionOptions> ParseKvPolicy(const boost::json::value& value);

}  // namespace quire::server
