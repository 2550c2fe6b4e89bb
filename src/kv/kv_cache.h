// KvCache: the control plane of the KV memory. Which frame holds which block of which sequence,
// what is shared, what is kept for later requests, what is given up.
//
// Owns frames' states, the prefix index and the leases' tables; holds no bytes. One thread calls it
// (the one that owns the scheduler). Moves of bytes it asks for are handed out as plain data
// (PendingCopy) and executed by the data plane before the step's first layer.
//
// A sequence's KV is a row of blocks of `block_tokens` tokens; a block takes one frame per layer
// group.
//
//     tokens of a sequence   |<------- committed() ------->|<- reserved, written by the next step
//     ->| blocks                 [ published ][ published ][ tail....|.........][..........]
//                            ^first_block(g): a window group gives back what left its window
//
// Codecs that encode whole blocks keep the newest ones in full precision. Blocks form residual
// groups of `residual_tokens` tokens, aligned at absolute positions; a group is open until all its
// tokens are committed, then sealed:
//
//     residual groups        |     sealed     |     sealed     |      open      |
//     body, one frame/block  [    ]  ...  [   ][    ]  ...  [  ]
//     tail, tail_frames/block                                  [    ][    ][  ..]
//
// A block has its body frame from the step on that completes its group, and its tail frames from
// the first step on that leaves its group open, until the group is sealed. So a step that begins
// and completes a group needs no tail frames for it. The first tokens of a sequence (sinks) may lie
// in frames of their own: a layer group of which only block 0 has a frame.
//
// What always holds (CheckInvariants recounts it):
//  - A frame is free, cached or leased; references = number of leases that list it.
//  - A published block is full, sealed, immutable and was written by a completed step. Its identity
//  is
//    (parent block, exact tokens), the first parent being (salt, adapter).
//  - Only blocks at or beyond committed() are written, and only while one lease holds them. Tail
//    frames before it may be shared by forks; each fork seals them into a body frame of its own.
//  - Eviction takes leaves first, least recently held first. Of a window group, blocks that left
//  the
//    window may go before their children: a hit needs only the blocks within the window.
//  - Match is pure; a Reserve or Extend that fails changes nothing.
//  - With a tail, hits end where residual groups do; without, also inside a block (by copy).
//
// A sequence that evicts tokens goes on in a private lease, which counts what is left of them
// (slots) and cannot be taken from it. Unverified draft tokens are written beyond committed(),
// accepted by Commit and taken back by Truncate. Extend is told how many there are: a group that
// only they complete keeps its tail.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace quire::kv {

enum class PrefixCaching { kOn, kOff };

// Which blocks of a sequence have a frame in a layer group.
enum class GroupBlocks : uint8_t { kAll, kFirst };

// Layers whose KV has the same span.
struct LayerGroup {
  // Tokens a query sees, itself included; nullopt: all.
  std::optional<int> window_tokens;
  // Frames that hold an unsealed block; 0: none (only without residual groups, or kFirst).
  int tail_frames = 0;
  GroupBlocks blocks = GroupBlocks::kAll;  // kFirst: its sinks
};

struct KvCacheOptions {
  int frames = 0;
  int block_tokens = 32;
  // Tokens of a residual group, a multiple of block_tokens; 0: blocks are encoded as they are
  // written, there is no tail.
  int residual_tokens = 0;
  std::vector<LayerGroup> groups = {LayerGroup{}};
  int max_leases = 256;
  int max_lease_tokens = 4096;  // longest sequence
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  int64_t frame_bytes = 0;  // for the statistics only
  uint64_t hash_key = 0;    // random per process: clients cannot aim at collisions
  BlockHash hash;           // empty: a keyed hash; tests make everything collide
};

enum class FrameRole : uint8_t { kBody, kTail };

// Bytes the data plane must copy before the step that follows: the first `tokens` tokens of a block
// from frame `from` to frame `to`, all layers of `group`. In the order given. Both frames are
// pinned until CopiesDone. A tail frame holds a part of the layers' heads, which the copy need not
// know: it takes all of the frame.
struct PendingCopy {
  int group = 0;
  FrameId from;
  FrameId to;
  int tokens = 0;
  FrameRole role = FrameRole::kBody;
  friend bool operator==(const PendingCopy&, const PendingCopy&) = default;
};

// What of a token list is cached, found by KvCache::Match. Valid until the cache changes.
struct PrefixMatch {
  int tokens = 0;  // the hit: full_blocks * block_tokens + partial_tokens
  int full_blocks = 0;
  int partial_tokens = 0;  // taken by copy from partial_source

  CacheKey key;
  std::optional<BlockId> tip;  // last full block of the hit, or the root; nullopt: no such root
  std::optional<BlockId> partial_source;
  uint64_t version = 0;
};

// Counters since the start, and the present state.
struct KvStats {
  int frames_total = 0;
  int frames_free = 0;
  int frames_cached = 0;
  int frames_leased = 0;
  // Token slots in leased frames, per group: a body frame has as many as a block, the tail frames
  // of a block share so many, a frame of sinks has none of its own.
  int64_t tokens_leased = 0;
  int64_t tokens_wasted = 0;  // of these, slots that hold no token
  int64_t waste_bytes = 0;    // tokens_wasted in bytes of their frames
  int64_t frames_published = 0;
  int64_t frames_merged = 0;  // computed twice and found equal: one copy was given back
  int64_t frames_evicted = 0;
  int64_t frames_left_window = 0;
  int64_t forks = 0;
  int64_t copies = 0;
  int64_t reservations_failed = 0;
};

class KvCache;

// The unsealed blocks of a lease in one layer group, ascending, and where they lie.
struct TailView {
  std::span<const int> blocks;
  std::span<const FrameId> frames;  // [blocks, tail_frames of the group]
};

// A sequence's hold on its blocks. Move-only; letting it go releases the blocks.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  bool held() const { return cache_ != nullptr; }
  int committed() const;  // tokens whose KV is computed
  int reserved() const;   // tokens there is room for
  // The body frames of blocks first_block(group).. of the sequence, as far as they have one. Valid
  // until the lease changes, as is the tail.
  int first_block(int group) const;
  std::span<const FrameId> frames(int group) const;
  TailView tail(int group) const;

 private:
  friend class KvCache;
  Lease(KvCache* cache, int slot) : cache_(cache), slot_(slot) {}
  KvCache* cache_ = nullptr;
  int slot_ = 0;
};

class KvCache {
 public:
  static constexpr int kMaxGroups = 64;      // models have one or two spans
  static constexpr int kPartialLevels = 64;  // blocks a lookup goes back for a part of one

  // kUsage when the options cannot work.
  static Status Validate(const KvCacheOptions& options);
  explicit KvCache(KvCacheOptions options);  // options must be valid
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvCacheOptions& options() const { return options_; }
  int block_tokens() const { return options_.block_tokens; }
  int groups() const { return static_cast<int>(options_.groups.size()); }
  // Where sequences may part and yet share: whole hits end at multiples of so many tokens.
  int seal_tokens() const { return SealTokens(options_); }

  // The longest usable cached prefix of `tokens`; at least one token is left to compute.
  PrefixMatch Match(std::span<const TokenId> tokens, const CacheKey& key) const;
  // The same match without the part that needs a copy.
  PrefixMatch FullBlocksOnly(PrefixMatch match) const;
  // No hit, under `key`: for requests that do not read the cache.
  PrefixMatch NoMatch(const CacheKey& key) const;

  // Frames that Reserve(match, length) takes from free and cached, the match's own included.
  int FramesToReserve(const PrefixMatch& match, int length) const;
  int frames_cached() const { return pool_.frames_cached(); }
  // Frames that can be had: free + cached, but for those pledged to somebody.
  int frames_available() const {
    return pool_.frames_free() + pool_.frames_cached() - frames_pledged();
  }
  // The most frames a lone sequence of `length` tokens holds at once when it is computed in steps
  // of `step_tokens`: what it needs to be possible at all.
  static int FramesForSequence(const KvCacheOptions& options, int length, int step_tokens);
  // The longest sequence (<= max_lease_tokens) for which that fits the pool.
  static int MaxSequenceTokens(const KvCacheOptions& options, int step_tokens);

  // A lease on the match plus room for `length` tokens in all (length > match.tokens). nullopt, and
  // nothing changed, when frames or lease slots do not suffice.
  std::optional<Lease> Reserve(const PrefixMatch& match, int length);

  // The most tokens (<= length) for which Reserve(match, .) finds frames; match.tokens: none.
  int LongestReservation(const PrefixMatch& match, int length) const;

  // Room for `length` tokens in all, writable from committed() on: a partly filled block that is
  // shared gets a copy. The last `unverified` tokens may be taken back. False, and nothing changed,
  // when frames do not suffice. To be called before every step that writes.
  [[nodiscard]] bool Extend(Lease& lease, int length, int unverified = 0);
  // Frames still to be taken to compute `length` tokens in all, in steps of `step_tokens`: what an
  // admission promises. The match's own frames count where nobody holds them now.
  int FramesToFinish(const PrefixMatch& match, int length, int step_tokens) const;
  int FramesToFinish(const Lease& lease, int length, int step_tokens) const;
  // Frames Extend would take.
  int FramesToExtend(const Lease& lease, int length, int unverified = 0) const;
  // The most tokens (<= length) for which Extend finds frames; committed(): none.
  int LongestExtension(const Lease& lease, int length) const;

  // `tokens` is the whole sequence up to what a completed step has computed: committed() ..
  // tokens.size() are new. Publishes sealed blocks, gives back their tails and what left the
  // windows.
  void Commit(Lease& lease, std::span<const TokenId> tokens);

  // Gives back room beyond `length` (>= committed()): rejected drafts.
  void Truncate(Lease& lease, int length);

  // A second lease on the committed tokens. nullopt when no lease slot is left.
  std::optional<Lease> Fork(const Lease& lease);

  // The blocks stay cached as far as they are published; the others are free.
  void Release(Lease lease);

  // A lease for a sequence that has evicted tokens: its blocks hold what is left of them, are
  // nobody else's and are never published. Room for `length` tokens now; frames for `length_max`
  // are kept free, so that extending it that far, token by token, never fails. nullopt, and nothing
  // changed, when frames or lease slots do not suffice.
  std::optional<Lease> ReservePrivate(int length, int length_max);
  // Frames that takes.
  int FramesToReservePrivate(int length_max) const;
  // Commit for a private lease: it holds `length` tokens.
  void CommitPrivate(Lease& lease, int length);
  // Gives up a private lease's committed tokens beyond `length`, which ends a residual group.
  void Shrink(Lease& lease, int length);
  bool is_private(const Lease& lease) const { return At(lease).pledge > 0; }

  // Frames that would become free or cached if the lease were released now.
  int FramesFreedByRelease(const Lease& lease) const;
  // Whether a frame would become free or cached if all of them were released.
  bool FreesTogether(std::span<const Lease* const> leases) const;
  // Whether both leases list the frame that holds `lease`'s partly filled tail.
  bool SharesTail(const Lease& lease, const Lease& other) const;

  // Copies asked for since the last CopiesDone, in order.
  std::span<const PendingCopy> pending_copies() const { return copies_; }
  // All of them have been executed.
  void CopiesDone();

  // The tokens of a published block, as in a match.
  std::span<const TokenId> tokens_of(BlockId block) const { return index_.tokens(block); }

  // Drops every cached block nobody holds.
  void DropCached();

  KvStats stats() const;
  int leases_held() const { return leases_held_; }

  // Recounts everything from scratch and aborts on a difference.
  void CheckInvariants() const;

 private:
  friend class Lease;

  struct GroupTable {
    int first_block = 0;           // before it nothing is held, neither body nor tail
    std::vector<FrameId> frames;   // [blocks] by block of the sequence; valid from first_block on
    std::vector<int> tail_blocks;  // unsealed blocks, ascending
    std::vector<FrameId> tail;     // [tail_blocks, tail_frames of the group]

    bool has_body(int block) const {
      return block >= first_block && block < static_cast<int>(frames.size());
    }
  };
  struct LeaseState {
    bool held = false;
    bool publishes = false;
    int committed = 0;
    int reserved = 0;
    int published_blocks = 0;
    int pledge = 0;                  // frames that a private lease may hold
    std::optional<BlockId> tip;      // the published block before the first private one, pinned
    std::vector<GroupTable> tables;  // [groups]
  };

  LeaseState& At(const Lease& lease) { return leases_[lease.slot_]; }
  const LeaseState& At(const Lease& lease) const { return leases_[lease.slot_]; }
  // kv_lookup.cc: how many blocks `tokens` tokens are, how many of them are sealed, how many have a
  // body frame, and how many of the first `blocks` have one in a group.
  static int BlocksFor(const KvCacheOptions& options, int tokens);
  static int SealTokens(const KvCacheOptions& options);
  static int SealedBlocks(const KvCacheOptions& options, int tokens);
  static int BodyBlocks(const KvCacheOptions& options, int tokens);
  static int BlocksIn(const LayerGroup& group, int blocks);
  int BlocksFor(int tokens) const { return BlocksFor(options_, tokens); }
  int SealedBlocks(int tokens) const { return SealedBlocks(options_, tokens); }
  int BodyFrames(int group, int tokens) const {
    return BlocksIn(options_.groups[group], BodyBlocks(options_, tokens));
  }
  bool has_tail() const { return options_.residual_tokens > 0; }
  static int FramesHeldAtOnce(const KvCacheOptions& options, const LayerGroup& group, int length,
                              int step_tokens);
  int Longest(int from, int to, base::FunctionRef<bool(int)> fits) const;
  int FirstBlockInWindow(int group, int position) const;
  bool WindowsAreCached(BlockId tip, int full, int length) const;
  std::optional<PrefixIndex::Partial> FindPartial(BlockId tip, int full,
                                                  std::span<const TokenId> rest) const;
  int CachedFramesOfHit(const PrefixMatch& match) const;
  void ForEachFrameOfHit(const PrefixMatch& match,
                         base::FunctionRef<void(int group, int block, FrameId)> visit) const;

  FrameId TakeFrame(int group);
  void EvictOne();
  void UnpublishBelow(BlockId block);
  void AddCopy(const PendingCopy& copy);
  // What a step makes of a sequence: `length` tokens, of which `certain` will not be taken back.
  struct Extent {
    int length = 0;
    int certain = 0;
  };
  std::optional<FrameId> FrameOfPartBlock(const LeaseState& state, int group, int block) const;
  void ForEachFrame(const Lease& lease, base::FunctionRef<void(FrameId)> visit) const;
  bool NeedsCopyOnWrite(const LeaseState& state, int group) const;
  int FramesToExtend(const LeaseState& state, Extent extent) const;
  int FramesHeld(const LeaseState& state) const;
  int frames_pledged() const;
  int FramesPledgedTo(const LeaseState& state) const;
  void Grow(LeaseState& state, Extent extent);

  // kv_tail.cc
  std::span<const FrameId> TailFrames(const LeaseState& state, int group, int block) const;
  int FirstTailBlock(const LeaseState& state, int group, Extent extent) const;
  int TailFramesToGrow(const LeaseState& state, int group, Extent extent) const;
  void CopyTailOnWrite(LeaseState& state, int group);
  void GrowTail(LeaseState& state, int group, Extent extent);
  void ShareTail(LeaseState& state, int group, const LeaseState& from);
  void DropTail(LeaseState& state, int group, int from, int to);
  void CheckTail(const LeaseState& state, int group, std::vector<int>& references) const;
  void TakeHit(LeaseState& state, const PrefixMatch& match);
  void SetTip(LeaseState& state, std::optional<BlockId> tip);
  void PublishBlock(LeaseState& state, std::span<const TokenId> tokens);
  void ShareFrames(LeaseState& state, BlockId block);
  void LeaveWindows(LeaseState& state);
  int AcquireSlot();
  void ReleaseSlot(int slot);

  struct WasteOfGroup {
    double tokens = 0.0;
    double frames = 0.0;
    double frames_without_slots = 0.0;
  };
  WasteOfGroup WasteOf(const LeaseState& state, int group) const;

  void CheckLease(const LeaseState& state, std::vector<int>& references,
                  std::vector<int>& block_pins) const;
  void CheckFrames(std::span<const int> references, std::span<const int> pins) const;
  void CheckBlocks(std::span<const int> block_pins) const;
  void CheckEvictionOrder() const;

  KvCacheOptions options_;
  bool has_full_group_ = false;
  bool has_windows_ = false;
  BlockPool pool_;
  PrefixIndex index_;
  std::vector<LeaseState> leases_;  // [max_leases]
  std::vector<int> free_slots_;
  int leases_held_ = 0;
  std::vector<int> private_slots_;           // of held private leases
  mutable std::vector<int> counts_scratch_;  // [frames], all zero between calls
  std::vector<PendingCopy> copies_;
  KvStats counters_;
};

}  // namespace quire::kv
