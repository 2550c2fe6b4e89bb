#include "kvstore/attention_plan.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <tuple>

#include "kernels/attention_kernels.h"

namespace quire::kvstore {
namespace {

using kernels::kSpan;

// Units a thread should get to choose from, so that the last ones level the load.
constexpr int kUnitsPerThread = 8;
// A position costs about as much to load as this many rows cost to compute with it.
constexpr int kLoadCost = 8;
// (span, row) results of split units: 131,072 positions of 32 q heads take half of them. Memory is
// touched only as far as it is used; a plan that needs more splits less.
constexpr int kMaxPartials = 1 << 17;
// (span, row) weights that are kept: 32 MiB, touched as they are used. 64 sequences of 4,096 slots
// and 32 q heads; what does not fit is scored by a second pass over keys.
constexpr int kMaxKept = 1 << 15;

size_t AlignUp(size_t floats) {
  return (floats + 15) / 16 * 16;
}

size_t QueryFloats(const KvLayout& layout) {
  return kRowBlock * kernels::PreparedQueryBytes(layout.head_dim()) / sizeof(float);
}

bool HasFullQueries(const KvLayout& layout) {
  return layout.has_tail() || layout.sink_tokens() > 0;
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
  requests_.reserve(limits.max_sequences);
  request_of_run_.reserve(limits.max_sequences);
  again_.reserve(limits.max_sequences);
  const int open_blocks = layout.residual_tokens() / layout.block_size();
  writes_.reserve(limits.max_rows / layout.block_size() + (2 + open_blocks) * limits.max_sequences);
  staged_.reserve(limits.max_sequences);
  if (layout.has_tail()) {
    // A staged block is written by this step from its first token to its last.
    staging_slots_ = limits.max_rows / layout.block_size();
    staging_ =
        Buffer::AllocateOrThrow(staging_slots_ * layout.kv_heads() * layout.full_pair_bytes());
  }
  for (const LayerGroup& group : layout.groups()) {
    auto same = [&](const UnitList& list) { return list.window == group.window; };
    auto found = std::find_if(lists_.begin(), lists_.end(), same);
    list_of_group_.push_back(static_cast<int>(found - lists_.begin()));
    if (found == lists_.end())
      lists_.push_back({.window = group.window, .units = {}, .splits = {}, .score_units = {}});
  }
  // Whole row blocks, and what splitting adds: a row block is split only if it costs more than a
  // 1/(threads * kUnitsPerThread) of all, into parts of about that cost.
  size_t row_blocks = CeilDiv(static_cast<int64_t>(limits.max_rows) * group_size(), kRowBlock) +
                      limits.max_sequences;
  if (layout.has_tail()) row_blocks += limits.max_rows / layout.residual_tokens() + 1;
  if (layout.has_tail()) row_blocks += limits.max_sequences;
  size_t split_units = 2 * limits.threads * kUnitsPerThread;
  for (UnitList& list : lists_) {
    list.units.reserve(row_blocks * layout.kv_heads() + split_units);
    list.splits.reserve(finished_.size());
    list.score_units.reserve(limits.max_sequences * layout.kv_heads() + split_units);
  }
  size_t head_dim = layout.head_dim();
  const size_t query_sets = HasFullQueries(layout) ? 2 : 1;
  scratch_floats_ = query_sets * AlignUp(QueryFloats(layout)) + 2 * AlignUp(kRowBlock * head_dim) +
                    kRowBlock * kSpan + 4 * AlignUp(kRowBlock);
  scratch_ = Buffer::AllocateOrThrow(scratch_floats_ * sizeof(float) * limits.threads);
  partial_values_ = Buffer::AllocateOrThrow(kMaxPartials * head_dim * sizeof(float));
  partial_sums_ = Buffer::AllocateOrThrow(2 * kMaxPartials * sizeof(float));
  kept_weights_ = Buffer::AllocateOrThrow(kMaxKept * kSpan * sizeof(float));
  kept_max_ = Buffer::AllocateOrThrow(kMaxKept * sizeof(float));
  row_totals_ = Buffer::AllocateOrThrow(static_cast<size_t>(limits.max_rows) * limits.q_heads *
                                        sizeof(RowTotal));
}

AttentionPlan::Scratch AttentionPlan::scratch(int thread) {
  QUIRE_CHECK_LT(thread, limits_.threads);
  float* next = reinterpret_cast<float*>(scratch_.data()) + thread * scratch_floats_;
  auto take = [&](size_t floats) { return std::exchange(next, next + AlignUp(floats)); };
  size_t values = static_cast<size_t>(kRowBlock) * layout_.head_dim();
  Scratch scratch;
  scratch.queries = reinterpret_cast<std::byte*>(take(QueryFloats(layout_)));
  if (HasFullQueries(layout_)) {
    scratch.full_queries = reinterpret_cast<std::byte*>(take(QueryFloats(layout_)));
  }
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

AttentionPlan::KeptSpan AttentionPlan::kept(const Unit& unit, int span) {
  const int index = *unit.first_kept + (span - unit.seen.first) * unit.rows;
  return {reinterpret_cast<float*>(kept_weights_.data()) + static_cast<size_t>(index) * kSpan,
          reinterpret_cast<float*>(kept_max_.data()) + index};
}

bool AttentionPlan::FinishUnit(int split, int units) {
  if (finished_[split].fetch_add(1, std::memory_order_acq_rel) + 1 != units) return false;
  finished_[split].store(0, std::memory_order_relaxed);
  return true;
}

// The end of the positions that are sealed once the run is done.
int AttentionPlan::SealedEnd(const SequenceRun& run) const {
  const int end = run.first_position + run.rows;
  return layout_.has_tail() ? end / layout_.residual_tokens() * layout_.residual_tokens() : end;
}

// The first block that the run begins.
int AttentionPlan::FirstNewBlock(const SequenceRun& run) const {
  return CeilDiv(run.first_position, layout_.block_size());
}

void AttentionPlan::CheckRun(const SequenceRun& run) const {
  QUIRE_CHECK_GE(run.rows, 1);
  QUIRE_CHECK_GE(run.first_position, 0);
  QUIRE_CHECK(run.window >= 0 && run.sinks >= 0 && run.evicted >= 0);
  QUIRE_CHECK_EQ(static_cast<int>(run.tables.size()), layout_.table_count());
  const int body_blocks = CeilDiv(SealedEnd(run), layout_.block_size());
  for (int group = 0; group < layout_.group_count(); ++group) {
    const BlockTable& table = run.tables[group];
    const Sight sight = SightOf(run, layout_.window(group));
    const bool sees_sinks = SlotsSeen(run.first_position + run.rows - 1, sight).sinks > 0;
    const int first_seen = sees_sinks ? 0 : SlotsSeen(run.first_position, sight).recent.begin;
    QUIRE_CHECK_LE(table.first_block, first_seen / layout_.block_size());
    if (body_blocks > table.first_block) {
      QUIRE_CHECK_GE(table.first_block + static_cast<int>(table.frames.size()), body_blocks);
    }
  }
}

void AttentionPlan::AddWrites(int run_index) {
  const SequenceRun& run = runs_[run_index];
  const int block_size = layout_.block_size();
  const int sealed = layout_.has_tail() ? SealedEnd(run) / block_size : 0;
  if (layout_.has_tail()) {
    // Blocks of a group that this run completes, but of which it has no rows.
    const int residual = layout_.residual_tokens();
    const int first = run.first_position / residual * residual / block_size;
    for (int b = first; b < std::min(sealed, run.first_position / block_size); ++b) {
      writes_.push_back({run_index, b, 0, 0, Seal::kYes});
    }
  }
  for (int row = 0; row < run.rows;) {
    int position = run.first_position + row;
    int block = position / block_size;
    int count = std::min(run.rows - row, block_size - position % block_size);
    writes_.push_back({run_index, block, row, count, block < sealed ? Seal::kYes : Seal::kNo});
    row += count;
  }
}

AttentionPlan::FullPlace AttentionPlan::full_place(int run, int block, int layer,
                                                   int kv_head) const {
  const SequenceHead head{runs_[run].tables, layer, kv_head};
  if (const auto place = TailPieces(layout_, head, block)) {
    return {place->frame, place->keys, place->values};
  }
  const int slot = staged_[run] + block - FirstNewBlock(runs_[run]);
  QUIRE_DCHECK(block >= FirstNewBlock(runs_[run]) && slot < staging_slots_);
  const size_t keys = (slot * layout_.kv_heads() + kv_head) * layout_.full_pair_bytes();
  return {std::nullopt, keys, keys + layout_.full_key_bytes()};
}

void AttentionPlan::Build(std::span<const SequenceRun> runs,
                          std::span<const ScoreRequest> requests) {
  QUIRE_CHECK_LE(static_cast<int>(runs.size()), limits_.max_sequences);
  runs_.assign(runs.begin(), runs.end());
  requests_.assign(requests.begin(), requests.end());
  request_of_run_.assign(runs.size(), std::nullopt);
  for (int i = 0; i < static_cast<int>(requests_.size()); ++i) {
    const ScoreRequest& request = requests_[i];
    QUIRE_CHECK(request.first_row >= 0 && request.first_row < request.end_row);
    QUIRE_CHECK_LE(request.end_row, runs_[request.run].rows);
    QUIRE_CHECK(!request_of_run_[request.run].has_value());
    QUIRE_CHECK_EQ(runs_[request.run].sinks, 0);
    request_of_run_[request.run] = i;
  }
  writes_.clear();
  staged_.clear();
  int rows = 0;
  int staged = 0;
  for (int i = 0; i < static_cast<int>(runs_.size()); ++i) {
    CheckRun(runs_[i]);
    rows += runs_[i].rows;
    QUIRE_CHECK_LE(rows, limits_.max_rows);
    AddWrites(i);
    staged_.push_back(staged);
    if (!layout_.has_tail()) continue;
    staged += std::max(0, SealedEnd(runs_[i]) / layout_.block_size() - FirstNewBlock(runs_[i]));
  }
  if (layout_.has_tail()) QUIRE_CHECK_LE(staged, staging_slots_);
  for (UnitList& list : lists_) BuildList(list);
}

AttentionPlan::RowBlock AttentionPlan::RowBlockAt(int run_index, int first, int window) const {
  const SequenceRun& run = runs_[run_index];
  int end = std::min(run.rows * group_size(), first + kRowBlock);
  if (layout_.has_tail()) {
    const int residual = layout_.residual_tokens();
    const int group = (run.first_position + first / group_size()) / residual;
    end = std::min(end, ((group + 1) * residual - run.first_position) * group_size());
  }
  const int begin_slot = run.first_position + first / group_size();
  const int last_slot = run.first_position + (end - 1) / group_size();
  const Sight sight = SightOf(run, window);
  const SeenSlots first_seen = SlotsSeen(begin_slot, sight);
  const int sinks = SlotsSeen(last_slot, sight).sinks;
  SpanRange seen;
  seen.sink_spans = CeilDiv(sinks, kSpan);
  seen.first_recent = first_seen.recent.begin / kSpan;
  seen.first = seen.first_recent - seen.sink_spans;
  seen.last = last_slot / kSpan;
  const int64_t slots = last_slot + 1 - first_seen.recent.begin + sinks;
  return {.run = run_index,
          .first = first,
          .rows = end - first,
          .seen = seen,
          .cost = slots * (end - first + kLoadCost)};
}

template <typename Visit>
void AttentionPlan::ForEachRowBlock(int window, Visit visit) const {
  for (int i = 0; i < static_cast<int>(runs_.size()); ++i) {
    const int rows = runs_[i].rows * group_size();
    for (int first = 0; first < rows;) {
      const RowBlock block = RowBlockAt(i, first, window);
      visit(block);
      first += block.rows;
    }
  }
}

void AttentionPlan::BuildList(UnitList& list) {
  list.units.clear();
  list.splits.clear();
  partials_used_ = 0;
  kept_used_ = 0;
  again_.clear();
  int64_t cost = 0;
  ForEachRowBlock(list.window, [&](const RowBlock& block) { cost += block.cost; });
  int64_t wanted = limits_.threads == 1
                       ? cost * layout_.kv_heads()
                       : cost * layout_.kv_heads() / (limits_.threads * kUnitsPerThread);
  wanted = std::max<int64_t>(wanted, 1);
  ForEachRowBlock(list.window, [&](const RowBlock& block) {
    const int spans = block.seen.last - block.seen.first + 1;
    Cut cut{.parts = std::min(spans, CeilDiv(block.cost, wanted)), .first_kept = std::nullopt};
    const std::optional<int> request = request_of_run_[block.run];
    if (request && block.first == 0) {
      cut.first_kept = TryReserveKept(block);
      if (!cut.first_kept) again_.push_back(*request);
    }
    AddUnits(list, block, cut);
  });
  AddScoreUnits(list);
  // Dearest first levels the load; within a power of two the order stays, since neighbours share
  // keys and values that are still in cache.
  auto key = [](const Unit& unit) {
    return std::tuple(-std::bit_width(static_cast<uint64_t>(unit.cost)), unit.order);
  };
  std::sort(list.units.begin(), list.units.end(),
            [&](const Unit& a, const Unit& b) { return key(a) < key(b); });
}

// Weights of all spans, rows and KV heads of a run; nullopt: its rows do not fit one row block, so
// that nobody could add them up in order, or memory is used up.
std::optional<int> AttentionPlan::TryReserveKept(const RowBlock& block) {
  if (block.rows != runs_[block.run].rows * group_size()) return std::nullopt;
  const int64_t wanted = static_cast<int64_t>(block.seen.last - block.seen.first + 1) * block.rows *
                         layout_.kv_heads();
  if (wanted > kMaxKept - kept_used_) return std::nullopt;
  return std::exchange(kept_used_, kept_used_ + static_cast<int>(wanted));
}

// Spans of a request are cut where the cost of those before reaches that of a unit. Later spans are
// seen by fewer rows.
void AttentionPlan::AddScoreUnits(UnitList& list) {
  list.score_units.clear();
  const auto rows_cost = [&](const ScoreRequest& request, int span) -> int64_t {
    const SequenceRun& run = runs_[request.run];
    const int first = std::max(run.first_position + request.first_row, span * kSpan);
    return (run.first_position + request.end_row - first) * group_size() + kLoadCost;
  };
  const auto spans = [&](const ScoreRequest& request) {
    const SequenceRun& run = runs_[request.run];
    const int first = run.first_position + request.first_row;
    return std::pair(SlotsSeen(first, SightOf(run, list.window)).recent.begin / kSpan,
                     (run.first_position + request.end_row - 1) / kSpan);
  };
  int64_t cost = 0;
  for (const int i : again_) {
    const auto [first, last] = spans(requests_[i]);
    for (int span = first; span <= last; ++span) cost += rows_cost(requests_[i], span);
  }
  const int wanted_units = limits_.threads == 1 ? 1 : limits_.threads * kUnitsPerThread;
  const int64_t wanted = std::max<int64_t>(cost * layout_.kv_heads() / wanted_units, 1);
  for (const int i : again_) {
    const auto [first, last] = spans(requests_[i]);
    for (int head = 0; head < layout_.kv_heads(); ++head) {
      ScoreUnit unit{.request = i, .kv_head = head, .first_span = first, .last_span = 0, .cost = 0};
      for (int span = first; span <= last; ++span) {
        unit.cost += rows_cost(requests_[i], span);
        if (unit.cost < wanted && span < last) continue;
        unit.last_span = span;
        list.score_units.push_back(unit);
        unit.first_span = span + 1;
        unit.cost = 0;
      }
    }
  }
  std::ranges::sort(list.score_units, std::greater(), &ScoreUnit::cost);
}

std::optional<int> AttentionPlan::TryReservePartials(const RowBlock& block) {
  int wanted = (block.seen.last - block.seen.first + 1) * block.rows;
  if (wanted > kMaxPartials - partials_used_) return std::nullopt;
  return std::exchange(partials_used_, partials_used_ + wanted);
}

void AttentionPlan::AddUnits(UnitList& list, const RowBlock& block, const Cut& cut) {
  const int spans = block.seen.last - block.seen.first + 1;
  const int parts = cut.parts;
  for (int head = 0; head < layout_.kv_heads(); ++head) {
    Unit unit{.run = block.run,
              .kv_head = head,
              .first = block.first,
              .rows = block.rows,
              .seen = block.seen,
              .first_span = block.seen.first,
              .last_span = block.seen.last,
              .split = std::nullopt,
              .first_kept = std::nullopt,
              .cost = block.cost,
              .order = static_cast<int>(list.units.size())};
    if (cut.first_kept) unit.first_kept = *cut.first_kept + head * spans * block.rows;
    std::optional<int> partial;
    if (parts > 1 && list.splits.size() < finished_.size()) partial = TryReservePartials(block);
    if (!partial) {
      list.units.push_back(unit);
      continue;
    }
    unit.split = static_cast<int>(list.splits.size());
    list.splits.push_back({parts, *partial});
    for (int part = 0; part < parts; ++part) {
      unit.first_span = block.seen.first + spans * part / parts;
      unit.last_span = block.seen.first + spans * (part + 1) / parts - 1;
      unit.cost = block.cost / parts;
      unit.order = static_cast<int>(list.units.size());
      list.units.push_back(unit);
    }
  }
}

}  // namespace quire::kvstore
