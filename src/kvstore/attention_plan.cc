#include "kvstore/attention_plan.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "kernels/attention_kernels.h"

namespace quire::kvstore {
namespace {

using kernels::kSpan;

// Units a thread should get to choose from, so that the last ones level the load.
constexpr int kUnitsPerThread = 4;
// A position costs about as much to load as this many rows cost to compute with it.
constexpr int kLoadCost = 8;
// (span, row) results of split units: 131,072 positions of 32 q heads take half of them. Memory is
// touched only as far as it is used; a plan that needs more splits less.
constexpr int kMaxPartials = 1 << 17;

size_t AlignUp(size_t floats) {
  return (floats + 15) / 16 * 16;
}

size_t QueryFloats(const KvLayout& layout) {
  return kRowBlock * kernels::PreparedQueryBytes(layout.head_dim()) / sizeof(float);
}

int CeilDiv(int64_t a, int64_t b) {
  return static_cast<int>((a + b - 1) / b);
}

}  // namespace

AttentionPlan::AttentionPlan(const KvLayout& layout, const AttentionLimits& limits)
    : layout_(layout), limits_(limits), finished_(limits.threads * kUnitsPerThread + 1) {
  QUIRE_CHECK_GE(limits.threads, 1);
  QUIRE_CHECK_GE(limits.max_sequences, 1);
  QUIRE_CHECK_GE(limits.max_rows, limits.max_sequences);
  QUIRE_CHECK_EQ(limits.q_heads % layout.kv_heads(), 0);
  runs_.reserve(limits.max_sequences);
  writes_.reserve(limits.max_rows / layout.block_size() + 2 * limits.max_sequences);
  for (const LayerGroup& group : layout.groups()) {
    auto same = [&](const UnitList& list) { return list.window == group.window; };
    auto found = std::find_if(lists_.begin(), lists_.end(), same);
    list_of_group_.push_back(static_cast<int>(found - lists_.begin()));
    if (found == lists_.end())
      lists_.push_back({.window = group.window, .units = {}, .splits = {}});
  }
  // Whole row blocks, and what splitting adds: a row block is split only if it costs more than a
  // 1/(threads * kUnitsPerThread) of all, into parts of about that cost.
  size_t row_blocks = CeilDiv(static_cast<int64_t>(limits.max_rows) * group_size(), kRowBlock) +
                      limits.max_sequences;
  size_t split_units = 2 * limits.threads * kUnitsPerThread;
  for (UnitList& list : lists_) {
    list.units.reserve(row_blocks * layout.kv_heads() + split_units);
    list.splits.reserve(finished_.size());
  }
  size_t head_dim = layout.head_dim();
  scratch_floats_ = AlignUp(QueryFloats(layout)) + 2 * AlignUp(kRowBlock * head_dim) +
                    kRowBlock * kSpan + 4 * AlignUp(kRowBlock);
  scratch_ = Buffer::AllocateOrThrow(scratch_floats_ * sizeof(float) * limits.threads);
  partial_values_ = Buffer::AllocateOrThrow(kMaxPartials * head_dim * sizeof(float));
  partial_sums_ = Buffer::AllocateOrThrow(2 * kMaxPartials * sizeof(float));
}

AttentionPlan::Scratch AttentionPlan::scratch(int thread) {
  QUIRE_CHECK_LT(thread, limits_.threads);
  float* next = reinterpret_cast<float*>(scratch_.data()) + thread * scratch_floats_;
  auto take = [&](size_t floats) { return std::exchange(next, next + AlignUp(floats)); };
  size_t values = static_cast<size_t>(kRowBlock) * layout_.head_dim();
  Scratch scratch;
  scratch.queries = reinterpret_cast<std::byte*>(take(QueryFloats(layout_)));
  scratch.scores = take(kRowBlock * kSpan);
  scratch.total = {take(kRowBlock), take(kRowBlock), take(values)};
  scratch.part = {take(kRowBlock), take(kRowBlock), take(values)};
  return scratch;
}

AttentionPlan::RowState AttentionPlan::partial(int index) {
  float* sums = reinterpret_cast<float*>(partial_sums_.data());
  float* values = reinterpret_cast<float*>(partial_values_.data());
  return {sums + index, sums + kMaxPartials + index,
          values + static_cast<size_t>(index) * layout_.head_dim()};
}

bool AttentionPlan::FinishUnit(int split, int units) {
  if (finished_[split].fetch_add(1, std::memory_order_acq_rel) + 1 != units) return false;
  finished_[split].store(0, std::memory_order_relaxed);
  return true;
}

void AttentionPlan::CheckRun(const SequenceRun& run) const {
  QUIRE_CHECK_GE(run.rows, 1);
  QUIRE_CHECK_GE(run.first_position, 0);
  QUIRE_CHECK_EQ(static_cast<int>(run.tables.size()), layout_.group_count());
  int last_block = (run.first_position + run.rows - 1) / layout_.block_size();
  for (int group = 0; group < layout_.group_count(); ++group) {
    const BlockTable& table = run.tables[group];
    int first_seen = VisibleRange(run.first_position, layout_.window(group)).begin;
    QUIRE_CHECK_LE(table.first_block, first_seen / layout_.block_size());
    QUIRE_CHECK_GT(table.first_block + static_cast<int>(table.frames.size()), last_block);
  }
}

void AttentionPlan::AddWrites(int run_index) {
  const SequenceRun& run = runs_[run_index];
  int block_size = layout_.block_size();
  for (int row = 0; row < run.rows;) {
    int position = run.first_position + row;
    int count = std::min(run.rows - row, block_size - position % block_size);
    writes_.push_back({run_index, position / block_size, row, count});
    row += count;
  }
}

void AttentionPlan::Build(std::span<const SequenceRun> runs) {
  QUIRE_CHECK_LE(static_cast<int>(runs.size()), limits_.max_sequences);
  runs_.assign(runs.begin(), runs.end());
  writes_.clear();
  int rows = 0;
  for (int i = 0; i < static_cast<int>(runs_.size()); ++i) {
    CheckRun(runs_[i]);
    rows += runs_[i].rows;
    QUIRE_CHECK_LE(rows, limits_.max_rows);
    AddWrites(i);
  }
  for (UnitList& list : lists_) BuildList(list);
}

template <typename Visit>
void AttentionPlan::ForEachRowBlock(int window, Visit visit) const {
  for (int i = 0; i < static_cast<int>(runs_.size()); ++i) {
    const SequenceRun& run = runs_[i];
    int rows = run.rows * group_size();
    for (int first = 0; first < rows; first += kRowBlock) {
      RowBlock block{.run = i, .first = first, .rows = std::min(kRowBlock, rows - first)};
      int begin = VisibleRange(run.first_position + first / group_size(), window).begin;
      int last = run.first_position + (first + block.rows - 1) / group_size();
      block.first_span = begin / kSpan;
      block.last_span = last / kSpan;
      block.cost = static_cast<int64_t>(last + 1 - begin) * (block.rows + kLoadCost);
      visit(block);
    }
  }
}

void AttentionPlan::BuildList(UnitList& list) {
  list.units.clear();
  list.splits.clear();
  partials_used_ = 0;
  int64_t cost = 0;
  ForEachRowBlock(list.window, [&](const RowBlock& block) { cost += block.cost; });
  int64_t wanted = limits_.threads == 1
                       ? cost * layout_.kv_heads()
                       : cost * layout_.kv_heads() / (limits_.threads * kUnitsPerThread);
  wanted = std::max<int64_t>(wanted, 1);
  ForEachRowBlock(list.window, [&](const RowBlock& block) {
    int spans = block.last_span - block.first_span + 1;
    AddUnits(list, block, std::min(spans, CeilDiv(block.cost, wanted)));
  });
  // Dearest first levels the load; within a power of two the order stays, since neighbours share
  // keys and values that are still in cache.
  auto key = [](const Unit& unit) {
    return std::tuple(-std::bit_width(static_cast<uint64_t>(unit.cost)), unit.order);
  };
  std::sort(list.units.begin(), list.units.end(),
            [&](const Unit& a, const Unit& b) { return key(a) < key(b); });
}

std::optional<int> AttentionPlan::TryReservePartials(const RowBlock& block) {
  int wanted = (block.last_span - block.first_span + 1) * block.rows;
  if (wanted > kMaxPartials - partials_used_) return std::nullopt;
  return std::exchange(partials_used_, partials_used_ + wanted);
}

void AttentionPlan::AddUnits(UnitList& list, const RowBlock& block, int parts) {
  int spans = block.last_span - block.first_span + 1;
  for (int head = 0; head < layout_.kv_heads(); ++head) {
    Unit unit{.run = block.run,
              .kv_head = head,
              .first = block.first,
              .rows = block.rows,
              .first_span = block.first_span,
              .last_span = block.last_span,
              .split = std::nullopt,
              .cost = block.cost,
              .order = static_cast<int>(list.units.size())};
    std::optional<int> partial;
    if (parts > 1 && list.splits.size() < finished_.size()) partial = TryReservePartials(block);
    if (!partial) {
      list.units.push_back(unit);
      continue;
    }
    unit.split = static_cast<int>(list.splits.size());
    list.splits.push_back({parts, block.first_span, block.last_span, *partial});
    for (int part = 0; part < parts; ++part) {
      unit.first_span = block.first_span + spans * part / parts;
      unit.last_span = block.first_span + spans * (part + 1) / parts - 1;
      unit.cost = block.cost / parts;
      unit.order = static_cast<int>(list.units.size());
      list.units.push_back(unit);
    }
  }
}

}  // namespace quire::kvstore
