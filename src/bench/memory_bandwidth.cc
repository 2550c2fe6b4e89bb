#include "bench/memory_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>

#include "base/check.h"
#include "tensor/buffer.h"

namespace quire::bench {
namespace {

constexpr int64_t kGrain = 1 << 17;  // words a thread takes at a time: 1 MiB

// Eight independent sums: the loop waits for memory, not for its own additions.
uint64_t Read(std::span<const uint64_t> words) {
  uint64_t sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= words.size(); i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] ^= words[i + k];
  }
  for (; i < words.size(); ++i) sums[0] ^= words[i];
  uint64_t all = 0;
  for (uint64_t sum : sums) all ^= sum;
  return all;
}

}  // namespace

Result<double> MeasureReadBandwidth(base::ThreadTeam& team, const BandwidthOptions& options) {
  QUIRE_CHECK(options.bytes >= 8 && options.passes >= 1);
  QUIRE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(static_cast<size_t>(options.bytes)));
  std::span<uint64_t> words = buffer.as<uint64_t>(static_cast<size_t>(options.bytes / 8));
  const auto count = static_cast<int64_t>(words.size());
  // Written first: untouched pages would all read from the system's one page of zeros.
  team.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) words[static_cast<size_t>(i)] = static_cast<uint64_t>(i);
  });
  std::atomic<uint64_t> result{0};
  double best_seconds = 1e30;
  for (int pass = 0; pass < options.passes; ++pass) {
    auto start = std::chrono::steady_clock::now();
    team.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end, int) {
      result ^= Read(words.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    });
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best_seconds = std::min(best_seconds, elapsed.count());
  }
  // The passes' results depend on every word; using them keeps the loop from being optimised away.
  uint64_t expected = 0;
  if (options.passes % 2 == 1) {
    for (int64_t i = 0; i < count; ++i) expected ^= static_cast<uint64_t>(i);
  }
  QUIRE_CHECK_EQ(result.load(), expected);
  return static_cast<double>(count * 8) / std::max(best_seconds, 1e-9);
}

}  // namespace quire::bench
