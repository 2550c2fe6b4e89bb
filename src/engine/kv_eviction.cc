#include "engine/kv_eviction.h"

#include <algorithm>
#include <numeric>

namespace quire::engine {

using kv::EvictionPolicy;

SlotMemory::SlotMemory(const kv::EvictionRule& rule, const Shape& shape, int slots,
                       int prompt_tokens)
    : rule_(rule),
      shape_(shape),
      prompt_tokens_(prompt_tokens),
      capacity_(std::max(slots, rule.slots_max())),
      scores_(static_cast<size_t>(heads()) * capacity_),
      positions_(scores_.size()) {}

void SlotMemory::Append(int count, int position) {
  QUIRE_CHECK_LE(slots_ + count, capacity_);
  for (int head = 0; head < heads(); ++head) {
    const size_t first = Index(head, slots_);
    std::iota(positions_.begin() + first, positions_.begin() + first + count, position);
    std::fill_n(scores_.begin() + first, count, 0.0f);
    if (rule_.policy != EvictionPolicy::kSnapKv) continue;
    const int scored = std::clamp(prompt_tokens_ - rule_.observed - position, 0, count);
    std::fill_n(scores_.begin() + first + scored, count - scored, kv::kUnscored);
  }
  slots_ += count;
}

void SlotMemory::ClearScores() {
  std::ranges::fill(scores_, 0.0f);
  prepared_ = false;
}

// TOVA's layers choose as one: the mean of their heads stands in the place of each.
void SlotMemory::AverageLayers() {
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int slot = 0; slot < slots_; ++slot) {
      float sum = 0.0f;
      for (int h = 0; h < shape_.kv_heads; ++h) {
        sum += scores_[Index(layer * shape_.kv_heads + h, slot)];
      }
      for (int h = 0; h < shape_.kv_heads; ++h) {
        scores_[Index(layer * shape_.kv_heads + h, slot)] =
            sum / static_cast<float>(shape_.kv_heads);
      }
    }
  }
}

void SlotMemory::PrepareToChoose() {
  if (std::exchange(prepared_, true)) return;
  if (rule_.policy == EvictionPolicy::kTova) AverageLayers();
  if (rule_.policy != EvictionPolicy::kSnapKv) return;
  std::vector<float> scratch;
  for (int head = 0; head < heads(); ++head) {
    kv::PoolScores(rule_, std::span(scores_).subspan(Index(head, 0), prompt_tokens_), scratch);
  }
}

kv::ScoredSlots SlotMemory::SlotsOf(int head) const {
  const size_t first = Index(head, 0);
  return {std::span(scores_).subspan(first, slots_), std::span(positions_).subspan(first, slots_)};
}

std::vector<int> SlotMemory::ChooseKept(int kept, base::ThreadTeam& team) {
  PrepareToChoose();
  std::vector<int> slots(static_cast<size_t>(heads()) * kept);
  team.ParallelFor(heads(), 1, [&](int64_t begin, int64_t end, int /*thread*/) {
    std::vector<int> scratch;
    for (int64_t head = begin; head < end; ++head) {
      kv::SelectKept(rule_, SlotsOf(static_cast<int>(head)),
                     std::span(slots).subspan(head * kept, kept), scratch);
    }
  });
  return slots;
}

std::vector<int> SlotMemory::ChooseVictims(base::ThreadTeam& team) {
  PrepareToChoose();
  std::vector<int> slots(heads());
  team.ParallelFor(heads(), 1, [&](int64_t begin, int64_t end, int /*thread*/) {
    for (int64_t head = begin; head < end; ++head) {
      slots[head] = kv::SelectVictim(rule_, SlotsOf(static_cast<int>(head)));
    }
  });
  return slots;
}

SlotMemory SlotMemory::Kept(std::span<const int> kept) const {
  const int count = static_cast<int>(kept.size()) / heads();
  SlotMemory left(rule_, shape_, 0, 0);  // the prompt matters no more
  for (int head = 0; head < heads(); ++head) {
    for (int i = 0; i < count; ++i) {
      const size_t from = Index(head, kept[static_cast<size_t>(head) * count + i]);
      left.scores_[left.Index(head, i)] = scores_[from];
      left.positions_[left.Index(head, i)] = positions_[from];
    }
  }
  left.slots_ = count;
  left.prepared_ = prepared_;
  return left;
}

void SlotMemory::ReplaceByLast(std::span<const int> victims) {
  --slots_;
  for (int head = 0; head < heads(); ++head) {
    scores_[Index(head, victims[head])] = scores_[Index(head, slots_)];
    positions_[Index(head, victims[head])] = positions_[Index(head, slots_)];
  }
}

namespace {

// Rows [begin, end) of a run that score.
struct Rows {
  int begin = 0;
  int end = 0;
};

Rows ScoringRows(const sched::ScheduledSequence& run, const sched::Sequence& sequence,
                 const sched::Scheduler& scheduler) {
  switch (sequence.eviction->policy) {
    case EvictionPolicy::kH2o:
      return {0, run.tokens};
    case EvictionPolicy::kSnapKv: {
      const int end = std::min(run.tokens, sequence.prompt_tokens - run.first_position);
      const int observed = sequence.prompt_tokens - sequence.eviction->observed;
      return {std::max(0, observed - run.first_position), end};
    }
    case EvictionPolicy::kTova:
      return {scheduler.EndsInEviction(run) ? run.tokens - 1 : run.tokens, run.tokens};
    default:
      return {};
  }
}

}  // namespace

std::shared_ptr<SlotMemory>& KvEviction::MemoryAt(SequenceId id) {
  if (memories_.size() <= static_cast<size_t>(id.value)) memories_.resize(id.value + 1);
  return memories_[id.value];
}

void KvEviction::Forget(SequenceId id) {
  MemoryAt(id).reset();
}

// What is remembered of a run's sequence, with room for the run.
SlotMemory& KvEviction::Prepare(const sched::StepPlan& plan, const sched::Scheduler& scheduler,
                                int run) {
  const sched::ScheduledSequence& scheduled = plan.sequences[run];
  const sched::Sequence& sequence = scheduler.sequence(scheduled.sequence);
  const int first_slot = scheduled.first_position - sequence.evicted;
  std::shared_ptr<SlotMemory>& memory = MemoryAt(sequence.id);
  const bool starts = std::ranges::find(plan.admitted, sequence.id) != plan.admitted.end();
  if (starts) memory.reset();  // again, where it was preempted
  if (!memory) {
    const kvstore::KvLayout& layout = store_.layout();
    memory = std::make_shared<SlotMemory>(
        *sequence.eviction, SlotMemory::Shape{layout.layers(), layout.kv_heads()},
        static_cast<int>(sequence.tokens.size()), sequence.prompt_tokens);
    memory->Append(first_slot, 0);  // found in the cache
  }
  if (memory.use_count() > 1) memory = std::make_shared<SlotMemory>(*memory);
  QUIRE_CHECK_EQ(memory->slots(), first_slot);
  memory->Append(scheduled.tokens, scheduled.first_position);
  return *memory;
}

void KvEviction::Plan(const sched::StepPlan& plan, const sched::Scheduler& scheduler) {
  requests_.clear();
  scores_.clear();
  for (int run = 0; run < static_cast<int>(plan.sequences.size()); ++run) {
    const sched::ScheduledSequence& scheduled = plan.sequences[run];
    const sched::Sequence& sequence = scheduler.sequence(scheduled.sequence);
    if (!sequence.eviction) continue;
    SlotMemory& memory = Prepare(plan, scheduler, run);
    const Rows rows = ScoringRows(scheduled, sequence, scheduler);
    if (rows.begin >= rows.end) continue;
    if (sequence.eviction->policy == EvictionPolicy::kTova) memory.ClearScores();
    requests_.push_back({.run = run, .first_row = rows.begin, .end_row = rows.end});
    scores_.push_back(memory.scores());
  }
}

// What a run computed is that of its forks too.
void KvEviction::RememberForks(const sched::Scheduler& scheduler) {
  const sched::StepPlan& plan = scheduler.plan();
  for (const sched::ScheduledSequence& run : plan.sequences) {
    if (!scheduler.sequence(run.sequence).eviction) continue;
    for (const SequenceId id : plan.samplers_of(run)) {
      if (id == run.sequence) continue;
      std::shared_ptr<SlotMemory> shared = MemoryAt(run.sequence);
      MemoryAt(id) = std::move(shared);
    }
  }
}

std::vector<kvstore::BlockTable> KvEviction::TablesOf(const kv::Lease& lease) const {
  std::vector<kvstore::BlockTable> tables;
  for (int table = 0; table < store_.layout().table_count(); ++table) {
    tables.push_back(kvstore::TableOf(lease, table));
  }
  return tables;
}

// One token more than may stay: it takes the place of the one that goes.
void KvEviction::ReplaceOne(SlotMemory& memory, const sched::Sequence& sequence) {
  const std::vector<int> victims = memory.ChooseVictims(team_);
  std::vector<kvstore::TokenMove> moves;
  const int kv_heads = store_.layout().kv_heads();
  for (int head = 0; head < memory.heads(); ++head) {
    moves.push_back({.layer = head / kv_heads,
                     .kv_head = head % kv_heads,
                     .from = memory.slots() - 1,
                     .to = victims[head]});
  }
  kvstore::MoveTokens(kernels_, store_, TablesOf(sequence.lease), moves);
  memory.ReplaceByLast(victims);
}

void KvEviction::Evict(const sched::PendingEviction& eviction, const sched::Sequence& sequence) {
  std::shared_ptr<SlotMemory>& own = MemoryAt(sequence.id);
  SlotMemory& memory = *own;
  QUIRE_CHECK_EQ(memory.slots(), eviction.slots);
  if (!sequence.survivors.held() && !store_.layout().has_tail()) {
    QUIRE_CHECK_EQ(eviction.kept, eviction.slots - 1);
    return ReplaceOne(memory, sequence);
  }
  const std::vector<int> kept = memory.ChooseKept(eviction.kept, team_);
  const std::vector<kvstore::BlockTable> from = TablesOf(sequence.lease);
  const std::vector<kvstore::BlockTable> to =
      sequence.survivors.held() ? TablesOf(sequence.survivors) : from;
  repacker_.Run(kernels_, store_,
                {.from = from,
                 .from_slots = eviction.slots,
                 .to = to,
                 .kept = {kept.data(), memory.heads(), eviction.kept}},
                team_);
  own = std::make_shared<SlotMemory>(memory.Kept(kept));
}

void KvEviction::Evict(sched::Scheduler& scheduler) {
  RememberForks(scheduler);
  if (scheduler.evictions().empty()) return;
  for (const sched::PendingEviction& eviction : scheduler.evictions()) {
    Evict(eviction, scheduler.sequence(eviction.sequence));
  }
  scheduler.EvictionsDone();
}

}  // namespace quire::engine
