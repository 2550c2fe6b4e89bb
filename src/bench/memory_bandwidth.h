// The ceiling of decoding: how fast all threads together read memory that no cache holds.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_team.h"

namespace quire::bench {

struct BandwidthOptions {
  int64_t bytes = int64_t{512} << 20;  // must exceed the caches several times
  int passes = 5;                      // the fastest counts
};

// Bytes per second. kExhausted if there is no memory to read.
Result<double> MeasureReadBandwidth(base::ThreadTeam& team, const BandwidthOptions& options);

}  // namespace quire::bench
