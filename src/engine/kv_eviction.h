// KvEviction: carries out token eviction for the engine. Gathers the scores that policies decide
// by, lets kv/eviction.h decide, has the bytes moved, and remembers which token each slot holds.
//
// Owns what it remembers of evicting sequences. A step:
//
//     Plan    before the forward pass: which rows' attention is wanted
//     Evict   after Scheduler::Commit: what Scheduler::evictions lists is decided and moved
//
// All of it depends on a sequence's own tokens alone, as the forward pass does: neither batch, nor
// chunking, nor a preemption before the first eviction changes what is kept.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "kvstore/attention_plan.h"
#include "kvstore/kv_store.h"
#include "kvstore/repack_kv.h"
#include "sched/scheduler.h"
#include "tensor/view.h"

namespace quire::engine {

// What an evicting sequence remembers of its slots, for each layer and KV head.
class SlotMemory {
 public:
  struct Shape {
    int layers = 0;
    int kv_heads = 0;
  };
  // Has room for `slots`, and for the rule's slots_max(). Nothing is in use yet.
  SlotMemory(const kv::EvictionRule& rule, const Shape& shape, int slots, int prompt_tokens);

  int heads() const { return shape_.layers * shape_.kv_heads; }
  int slots() const { return slots_; }
  std::span<const int> positions(int head) const {
    return std::span(positions_).subspan(Index(head, 0), slots_);
  }
  // What forward passes add scores to: [layers * kv_heads, slots].
  MatrixView<float> scores() { return {scores_.data(), heads(), capacity_}; }

  // The next `count` slots hold the tokens from `position` on.
  void Append(int count, int position);
  // What was scored so far counts no more.
  void ClearScores();

  // The slots that stay, ascending: [layers * kv_heads, kept].
  std::vector<int> ChooseKept(int kept, base::ThreadTeam& team);
  SlotMemory Kept(std::span<const int> kept) const;
  // The one slot of each head that goes, and the last one comes in its place: [layers * kv_heads].
  std::vector<int> ChooseVictims(base::ThreadTeam& team);
  void ReplaceByLast(std::span<const int> victims);

 private:
  size_t Index(int head, int slot) const {
    return static_cast<size_t>(head) * static_cast<size_t>(capacity_) + static_cast<size_t>(slot);
  }
  kv::ScoredSlots SlotsOf(int head) const;
  void AverageLayers();
  void PrepareToChoose();

  kv::EvictionRule rule_;
  Shape shape_;
  int prompt_tokens_ = 0;
  int capacity_ = 0;
  int slots_ = 0;
  bool prepared_ = false;       // the scores are as the policy compares them
  std::vector<float> scores_;   // [heads, capacity]
  std::vector<int> positions_;  // [heads, capacity]
};

class KvEviction {
 public:
  KvEviction(const kernels::KernelTable& kernels, kvstore::KvStore& store, base::ThreadTeam& team)
      : kernels_(kernels), store_(store), team_(team), repacker_(store.layout(), team.size()) {}

  // What the step's forward pass is to score, until the next call.
  void Plan(const sched::StepPlan& plan, const sched::Scheduler& scheduler);
  std::span<const kvstore::ScoreRequest> requests() const { return requests_; }
  std::span<const MatrixView<float>> scores() const { return scores_; }

  void Evict(sched::Scheduler& scheduler);
  void Forget(SequenceId id);

  // The tokens in the slots of one of an evicting sequence's heads: layer * kv_heads + kv_head.
  std::span<const int> PositionsOf(SequenceId id, int head) const {
    return memories_[id.value]->positions(head);
  }

 private:
  std::shared_ptr<SlotMemory>& MemoryAt(SequenceId id);
  SlotMemory& Prepare(const sched::StepPlan& plan, const sched::Scheduler& scheduler, int run);
  void RememberForks(const sched::Scheduler& scheduler);
  std::vector<kvstore::BlockTable> TablesOf(const kv::Lease& lease) const;
  void ReplaceOne(SlotMemory& memory, const sched::Sequence& sequence);
  void Evict(const sched::PendingEviction& eviction, const sched::Sequence& sequence);

  const kernels::KernelTable& kernels_;
  kvstore::KvStore& store_;
  base::ThreadTeam& team_;
  kvstore::KvRepacker repacker_;
  // By SequenceId. Forks share what is remembered of their prompt until one of them goes on.
  std::vector<std::shared_ptr<SlotMemory>> memories_;
  std::vector<kvstore::ScoreRequest> requests_;
  std::vector<MatrixView<float>> scores_;  // [requests]
};

}  // namespace quire::engine
