// FakeFrames: a stand-in for the bytes of the KV arena in tests of the control plane.
//
// Every token slot of every frame remembers which prefix its KV was computed from. Whoever reads a
// slot that was overwritten, never written, copied too late or given to somebody else is found out.
#pragma once

#include <span>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kv/kv_cache.h"

namespace quire::kv {

class FakeFrames {
 public:
  explicit FakeFrames(const KvCacheOptions& options)
      : options_(options), slots_(static_cast<size_t>(options.frames) * options.block_tokens, 0) {}

  void Copy(std::span<const PendingCopy> copies) {
    for (const PendingCopy& copy : copies) {
      for (int i = 0; i < copy.tokens; ++i) Slot(copy.to, i) = Slot(copy.from, i);
    }
  }

  // A step computes tokens[first, first + count) of the lease: writes them, then reads what the
  // first and the last of these queries see. Aborts when a slot does not hold what it should.
  void Compute(const Lease& lease, std::span<const TokenId> tokens, const CacheKey& key, int first,
               int count) {
    const std::vector<uint64_t> prefixes = Prefixes(tokens.first(first + count), key);
    for (int g = 0; g < static_cast<int>(options_.groups.size()); ++g) {
      for (int p = first; p < first + count; ++p) SlotOf(lease, g, p) = prefixes[p];
      CheckSeen(lease, g, prefixes, first);
      CheckSeen(lease, g, prefixes, first + count - 1);
    }
  }

  // What the next query would see of the committed tokens is what was computed from `tokens`.
  void CheckCommitted(const Lease& lease, std::span<const TokenId> tokens, const CacheKey& key) {
    if (lease.committed() == 0) return;
    const std::vector<uint64_t> prefixes = Prefixes(tokens.first(lease.committed()), key);
    for (int g = 0; g < static_cast<int>(options_.groups.size()); ++g) {
      const int window = options_.groups[g].window_tokens.value_or(lease.committed() + 1);
      for (int p = std::max(0, lease.committed() - window + 1); p < lease.committed(); ++p) {
        QUIRE_CHECK_EQ(SlotOf(lease, g, p), prefixes[p]);
      }
    }
  }

 private:
  static std::vector<uint64_t> Prefixes(std::span<const TokenId> tokens, const CacheKey& key) {
    uint64_t hash = base::Mix64(key.adapter);
    for (char c : key.salt) hash = base::Mix64(hash ^ static_cast<unsigned char>(c));
    std::vector<uint64_t> prefixes;
    for (TokenId token : tokens) prefixes.push_back(hash = base::Mix64(hash ^ token));
    return prefixes;
  }

  uint64_t& Slot(FrameId frame, int slot) {
    return slots_[static_cast<size_t>(frame.value) * options_.block_tokens + slot];
  }

  uint64_t& SlotOf(const Lease& lease, int group, int position) {
    const int block = position / options_.block_tokens - lease.first_block(group);
    QUIRE_CHECK_GE(block, 0);
    QUIRE_CHECK_LT(block, static_cast<int>(lease.frames(group).size()));
    return Slot(lease.frames(group)[block], position % options_.block_tokens);
  }

  void CheckSeen(const Lease& lease, int group, std::span<const uint64_t> prefixes, int query) {
    const int window = options_.groups[group].window_tokens.value_or(query + 1);
    for (int p = std::max(0, query - window + 1); p <= query; ++p) {
      QUIRE_CHECK_EQ(SlotOf(lease, group, p), prefixes[p]);
    }
  }

  KvCacheOptions options_;
  std::vector<uint64_t> slots_;  // [frames, block_tokens]
};

}  // namespace quire::kv
