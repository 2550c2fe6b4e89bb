// How much a random test runs, and from which seed: both are printed, and the environment decides.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "testing/sanitized.h"

namespace quire::testing {

// $QUIRE_TEST_SEED, else `seed`; printed so that a failure can be repeated.
inline uint64_t TestSeed(uint64_t seed) {
  if (const char* text = std::getenv("QUIRE_TEST_SEED")) seed = std::strtoull(text, nullptr, 10);
  std::printf("seed %llu (QUIRE_TEST_SEED)\n", static_cast<unsigned long long>(seed));
  return seed;
}

// $QUIRE_TEST_RUNS, else `release` in an optimised build without checks and a share of it
// elsewhere.
inline int64_t TestRuns(int64_t release) {
  if (const char* text = std::getenv("QUIRE_TEST_RUNS")) {
    return std::strtoll(text, nullptr, 10);
  }
  if (kSanitized) return release / 20;
#ifdef QUIRE_CHECKS
  return release / 5;
#else
  return release;
#endif
}

}  // namespace quire::testing
