// FakeFrames: a stand-in for the bytes of the KV arena in tests of the control plane.
//
// Every token slot of every frame remembers which prefix its KV was computed from, and whether in
// full precision or sealed. Whoever reads a slot that was overwritten, never written, sealed too
// early or too late, copied too late or given to somebody else is found out. What a step begins and
// completes passes through a staging area; what it leaves open must be in the tail.
#pragma once

#include <map>
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
      const int slots = copy.role == FrameRole::kTail ? options_.block_tokens : copy.tokens;
      for (int i = 0; i < slots; ++i) Slot(copy.to, i) = Slot(copy.from, i);
    }
  }

  // A step computes tokens[first, first + count) of the lease: writes them, seals the groups they
  // complete, then reads what each of these queries sees. Aborts when a slot does not hold what it
  // should.
  void Compute(const Lease& lease, std::span<const TokenId> tokens, const CacheKey& key, int first,
               int count) {
    ComputeSlots(lease, Prefixes(tokens.first(first + count), key), first, count);
  }

  // The same where slot i holds the token at positions[i]: a step writes the slots from `first` on.
  void ComputeKept(const Lease& lease, std::span<const TokenId> tokens, const CacheKey& key,
                   std::span<const int> positions, int first) {
    const std::vector<uint64_t> prefixes = Prefixes(tokens, key);
    std::vector<uint64_t> kept;
    for (int position : positions) kept.push_back(prefixes[position]);
    ComputeSlots(lease, kept, first, static_cast<int>(positions.size()) - first);
  }

  // Slot kept[i] of `from`, a sequence's whole lease, goes to slot i of `to`, which may be the
  // same.
  void Move(const Lease& from, const Lease& to, std::span<const int> kept) {
    const auto count = static_cast<int>(kept.size());
    if (options_.residual_tokens > 0) QUIRE_CHECK_EQ(count % options_.residual_tokens, 0);
    for (int g = 0; g < static_cast<int>(options_.groups.size()); ++g) {
      if (Sinks(g)) continue;
      std::vector<uint64_t> values;
      for (int slot : kept) values.push_back(SealedValue(from, g, slot));
      for (int i = 0; i < count; ++i) {
        BodySlot(to, g, i) = values[i];
        if (i < options_.block_tokens && SinksOf(g)) BodySlot(to, *SinksOf(g), i) = values[i];
      }
    }
  }

 private:
  // prefixes[i]: what slot i holds or will hold.
  void ComputeSlots(const Lease& lease, const std::vector<uint64_t>& prefixes, int first,
                    int count) {
    for (int g = 0; g < static_cast<int>(options_.groups.size()); ++g) {
      if (Sinks(g)) continue;
      staging_.clear();
      for (int p = first; p < first + count; ++p) Write(lease, g, p, prefixes[p]);
      Seal(lease, g, prefixes, first, count);
      for (int p = first; p < first + count; ++p) CheckSeen(lease, g, prefixes, p, p);
    }
  }

  // What a slot holds as it is once sealed.
  uint64_t SealedValue(const Lease& lease, int group, int slot) {
    if (options_.residual_tokens == 0) return BodySlot(lease, group, slot);
    const std::span<const FrameId> tail = Tail(lease, group, slot / options_.block_tokens);
    if (tail.empty()) return BodySlot(lease, group, slot);
    return Sealed(Slot(tail.front(), slot % options_.block_tokens));
  }

 public:
  // What the next query would see of the committed tokens is what was computed from `tokens`.
  void CheckCommitted(const Lease& lease, std::span<const TokenId> tokens, const CacheKey& key) {
    const std::vector<uint64_t> prefixes = Prefixes(tokens.first(lease.committed()), key);
    staging_.clear();
    for (int g = 0; g < static_cast<int>(options_.groups.size()); ++g) {
      if (!Sinks(g)) CheckSeen(lease, g, prefixes, lease.committed(), lease.committed() - 1);
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

  bool Sinks(int group) const { return options_.groups[group].blocks == GroupBlocks::kFirst; }
  // The group with the sinks of `group`, which follow the groups they belong to.
  std::optional<int> SinksOf(int group) const {
    const int sinks = group + static_cast<int>(options_.groups.size()) / 2;
    if (!Sinks(static_cast<int>(options_.groups.size()) - 1)) return std::nullopt;
    return sinks;
  }
  static uint64_t Sealed(uint64_t value) { return base::Mix64(value ^ 0x5ea1ed); }

  uint64_t& BodySlot(const Lease& lease, int group, int position) {
    const int block = position / options_.block_tokens - lease.first_block(group);
    QUIRE_CHECK_GE(block, 0);
    QUIRE_CHECK_LT(block, static_cast<int>(lease.frames(group).size()));
    return Slot(lease.frames(group)[block], position % options_.block_tokens);
  }

  // The tail's frames of the block, if it has any.
  std::span<const FrameId> Tail(const Lease& lease, int group, int block) const {
    const TailView tail = lease.tail(group);
    const size_t frames = options_.groups[group].tail_frames;
    for (size_t i = 0; i < tail.blocks.size(); ++i) {
      if (tail.blocks[i] == block) return tail.frames.subspan(i * frames, frames);
    }
    return {};
  }

  void Write(const Lease& lease, int group, int position, uint64_t value) {
    const int block = position / options_.block_tokens;
    if (options_.residual_tokens == 0) {
      BodySlot(lease, group, position) = value;
      if (block == 0 && SinksOf(group)) BodySlot(lease, *SinksOf(group), position) = value;
      return;
    }
    const std::span<const FrameId> tail = Tail(lease, group, block);
    if (tail.empty()) staging_[position] = value;
    for (FrameId frame : tail) Slot(frame, position % options_.block_tokens) = value;
  }

  void Seal(const Lease& lease, int group, const std::vector<uint64_t>& prefixes, int first,
            int count) {
    if (options_.residual_tokens == 0) return;
    const int residual = options_.residual_tokens;
    const int from =
        std::max(first / residual * residual, lease.first_block(group) * options_.block_tokens);
    for (int p = from; p < (first + count) / residual * residual; ++p) {
      CheckFull(lease, group, p, prefixes[p]);
      BodySlot(lease, group, p) = Sealed(prefixes[p]);
      if (p < options_.block_tokens && SinksOf(group)) {
        BodySlot(lease, *SinksOf(group), p) = Sealed(prefixes[p]);
      }
    }
  }

  // In full precision, in every frame of the tail.
  void CheckFull(const Lease& lease, int group, int position, uint64_t value) {
    const std::span<const FrameId> tail = Tail(lease, group, position / options_.block_tokens);
    if (tail.empty()) {
      QUIRE_CHECK(staging_.contains(position));
      QUIRE_CHECK_EQ(staging_.at(position), value);
    }
    for (FrameId frame : tail) QUIRE_CHECK_EQ(Slot(frame, position % options_.block_tokens), value);
  }

  // The query at `query` sees of the tokens up to `last` what it should.
  void CheckSeen(const Lease& lease, int group, const std::vector<uint64_t>& prefixes, int query,
                 int last) {
    const int window = options_.groups[group].window_tokens.value_or(query + 1);
    const int residual = options_.residual_tokens;
    for (int p = std::max(0, query - window + 1); p <= last; ++p) {
      if (residual > 0 && p / residual == query / residual) {
        CheckFull(lease, group, p, prefixes[p]);
        continue;
      }
      const uint64_t value = residual > 0 ? Sealed(prefixes[p]) : prefixes[p];
      QUIRE_CHECK_EQ(BodySlot(lease, group, p), value);
      if (p < options_.block_tokens && SinksOf(group)) {
        QUIRE_CHECK_EQ(BodySlot(lease, *SinksOf(group), p), value);
      }
    }
  }

  std::map<int, uint64_t> staging_;  // by position
  KvCacheOptions options_;
  std::vector<uint64_t> slots_;  // [frames, block_tokens]
};

}  // namespace quire::kv
