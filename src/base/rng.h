// Counter-based randomness: a draw depends on its key alone, never on what was drawn before, so a
// batch, a preemption or a rollback cannot change a sample.
#pragma once

#include <cstdint>

namespace quire::base {

// Bijective 64-bit mixer (SplitMix64 finalizer, Steele et al. 2014).
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The stream of numbers that belongs to (seed, stream, position).
class CounterRng {
 public:
  constexpr CounterRng(uint64_t seed, uint64_t stream, uint64_t position)
      : key_(Mix64(Mix64(Mix64(seed) ^ stream) ^ position)) {}

  constexpr uint64_t NextU64() { return Mix64(key_ ^ Mix64(counter_++)); }

  // Uniform in [0, 1) with 53 random bits.
  constexpr double NextUnit() { return static_cast<double>(NextU64() >> 11) * 0x1.0p-53; }

  // Uniform in [0, bound); the bias (< 2^-32 for bounds below 2^32) does not matter here.
  constexpr uint64_t NextBelow(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(NextU64()) * bound) >> 64);
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace quire::base
