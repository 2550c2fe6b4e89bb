// Trace files: requests for `quire sim`, one JSON object per line.
//
//   {"arrival_s": 0.5, "prompt": [5, 812, 9], "output_tokens": 80}
//   {"arrival_s": 0.7, "prefix": 3, "prefix_tokens": 1200, "content": 17, "prompt_tokens": 150,
//    "output_tokens": 80, "priority": 0, "n": 1, "cache_salt": "tenant"}
//
// The first lists its prompt's token ids. The second describes them (sched/trace.h): requests of
// the same `prefix` begin alike, requests of the same `content` continue each other. All but the
// lengths may be left out; a request without `content` shares nothing beyond its prefix.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sched/trace.h"

namespace quire::cli {

// Sorted by arrival. kInvalid names the line at fault; `path` is for the message.
Result<std::vector<sched::TraceRequest>> ParseTrace(std::string_view text, std::string_view path);

std::string FormatTrace(const std::vector<sched::TraceRequest>& trace);

}  // namespace quire::cli
