// AttentionPlan: a step's attention cut into work units, once per step for all layers, and the
// memory in which they work.
//
// Owns: unit lists, scratch per thread, partial results of split spans. Built by the thread that
// drives the step; WriteKv and Attention (attention.h) use it. Everything is allocated at
// construction; Build and what follows allocate nothing. The runs' block tables are borrowed: they
// must stay as they are until the step's last layer is done.
//
// How work is cut never changes a result (see attention.h), so the cut follows load alone:
//   rows    of a run and KV head: its (query, q head of the group) pairs, query by query
//   unit  = (run, KV head, up to kRowBlock rows, a range of spans). Its rows' positions lie in one
//           residual group, so all of them see a block alike. A unit usually takes all spans
//           its rows see; where that would leave threads idle the range is split, each span's
//           partial result is stored, and whoever finishes last merges them from left to right.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kvstore/block_pieces.h"
#include "kvstore/kv_layout.h"
#include "tensor/buffer.h"

namespace quire::kvstore {

// A sequence's part in a step: query i is row first_row + i of the batch and has position
// first_position + i. After the step's WriteKv the sequence has first_position + rows tokens.
//
// A sequence that has evicted tokens lives in slots: positions here are slots then, in the order of
// its tokens' true positions, which only keys and queries know (they are rotated by them).
struct SequenceRun {
  int first_row = 0;
  int rows = 0;
  int first_position = 0;
  std::span<const BlockTable> tables;  // [layout.table_count()]
  // StreamingLLM (2309.17453): a query sees the last `window` slots, itself included, and the first
  // `sinks` slots of all (Sight); 0: no such limit. Frames in between are not looked at.
  int window = 0;
  int sinks = 0;
  int evicted = 0;  // tokens that are gone between the sinks and the slots behind them
};

// Asks for the attention that rows [first_row, end_row) of a run pay to each slot
// (attention_scores.h).
struct ScoreRequest {
  int run = 0;
  int first_row = 0;
  int end_row = 0;
};

// The largest step that a plan can hold.
struct AttentionLimits {
  int max_rows = 0;
  int max_sequences = 0;
  int q_heads = 0;
  int threads = 1;
};

inline constexpr int kRowBlock = 48;  // rows that share a pass over K and V

// Positions [begin, end).
struct PositionRange {
  int begin = 0;
  int end = 0;
};

// What a query at `position` sees: at most `window` tokens, itself included; 0: all before it.
inline PositionRange VisibleRange(int position, int window) {
  return {window == 0 || position < window ? 0 : position - window + 1, position + 1};
}

// What a run's queries see in layers of one window.
struct Sight {
  int window = 0;  // as in VisibleRange
  int sinks = 0;
  int evicted = 0;
};

// The tighter window of both. Layers with a window of their own have learnt to do without the first
// tokens: they see no sinks.
inline Sight SightOf(const SequenceRun& run, int layer_window) {
  if (layer_window == 0) {
    const bool sees_all = run.window == 0 && run.evicted == 0;
    return {run.window, sees_all ? 0 : run.sinks, run.evicted};
  }
  return {run.window == 0 ? layer_window : std::min(run.window, layer_window), 0, 0};
}

// The slots that a query sees: the first `sinks` ones by its sink query, the recent ones by its
// own.
struct SeenSlots {
  int sinks = 0;
  PositionRange recent;
};

// As long as the window reaches to the sinks, and nothing between them is gone, all is recent.
inline SeenSlots SlotsSeen(int slot, const Sight& sight) {
  const PositionRange recent = VisibleRange(slot, sight.window);
  if (recent.begin <= sight.sinks && sight.evicted == 0) return {0, {0, recent.end}};
  const int sinks = std::min(sight.sinks, slot);
  return {sinks, {std::max(recent.begin, sinks), recent.end}};
}

// Spans that rows see, numbered for merging: first those of the sinks, then the recent ones by
// their own numbers.
struct SpanRange {
  int first = 0;
  int last = 0;  // inclusive
  int sink_spans = 0;
  int first_recent = 0;  // first = first_recent - sink_spans

  bool is_sinks(int span) const { return span < first_recent; }
  // The number of the span in the sequence.
  int span_of(int span) const { return is_sinks(span) ? span - (first_recent - sink_spans) : span; }
};

class AttentionPlan {
 public:
  struct Unit {
    int run = 0;
    int kv_head = 0;
    int first = 0;   // of the run's rows for this KV head
    int rows = 0;    // 1..kRowBlock
    SpanRange seen;  // by its rows
    int first_span = 0;
    int last_span = 0;         // inclusive
    std::optional<int> split;  // an index into splits; nullopt: the unit sees all spans of its rows
    // Weights of (span, row) are kept at: first_kept + (span - seen.first) * rows + row. Nullopt:
    // they are not kept.
    std::optional<int> first_kept;
    int64_t cost = 0;
    int order = 0;
  };

  // The units that share one output.
  struct Split {
    int units = 0;
    int first_partial = 0;  // of (span, row): first_partial + (span - seen.first) * rows + row
  };

  // Work of the second pass: one KV head of a request, spans [first_span, last_span].
  struct ScoreUnit {
    int request = 0;
    int kv_head = 0;
    int first_span = 0;
    int last_span = 0;  // inclusive
    int64_t cost = 0;
  };

  struct UnitList {
    int window = 0;
    std::vector<Unit> units;  // dearest first
    std::vector<Split> splits;
    std::vector<ScoreUnit> score_units;  // of requests whose weights are not kept; dearest first
  };

  // What a step writes of one block: new rows of a run, and, where the step completes the block's
  // residual group, all of it sealed (then there may be no new rows).
  enum class Seal : uint8_t { kNo, kYes };
  struct WriteItem {
    int run = 0;
    int block = 0;
    int first = 0;  // of the run's rows
    int count = 0;
    Seal seal = Seal::kNo;
  };

  // Where the f16 pieces of an unsealed block lie: in a tail frame, or (nullopt) in staging().
  struct FullPlace {
    std::optional<FrameId> frame;
    size_t keys = 0;  // offsets
    size_t values = 0;
  };

  // Running softmax of some rows: the largest score, the sum of weights relative to it (0: nothing
  // seen yet) and the weighted values.
  struct RowState {
    float* max = nullptr;  // [rows]
    float* sum = nullptr;  // [rows]
    float* out = nullptr;  // [rows, head_dim]
  };

  // A row's softmax over all that it sees: the largest score, the sum of weights relative to it.
  struct RowTotal {
    float max = 0.0f;
    float sum = 0.0f;
  };

  // Kept weights of one span, and its largest scores.
  struct KeptSpan {
    float* weights = nullptr;  // [rows, kSpan]
    float* max = nullptr;      // [rows]
  };

  // A run's rows for one KV head that are processed together, and the spans they see.
  struct RowBlock {
    int run = 0;
    int first = 0;
    int rows = 0;
    SpanRange seen;
    int64_t cost = 0;
  };

  // One thread's memory.
  struct Scratch {
    std::byte* queries = nullptr;       // [kRowBlock, kernels::PreparedQueryBytes(head_dim)]
    std::byte* full_queries = nullptr;  // for f16 keys, likewise; null: no tail and no sinks
    float* scores = nullptr;            // [kRowBlock, kSpan]
    RowState total;                     // [kRowBlock]
    RowState part;                      // [kRowBlock]
  };

  AttentionPlan(const KvLayout& layout, const AttentionLimits& limits);

  // Plans a step. The runs must keep to the limits, and every table must cover the blocks from the
  // first one that the run's first query sees to the one that holds its last query. At most one
  // request per run, of runs without sinks.
  void Build(std::span<const SequenceRun> runs, std::span<const ScoreRequest> requests = {});

  const KvLayout& layout() const { return layout_; }
  int q_heads() const { return limits_.q_heads; }
  int group_size() const { return limits_.q_heads / layout_.kv_heads(); }
  int threads() const { return limits_.threads; }

  std::span<const SequenceRun> runs() const { return runs_; }
  std::span<const WriteItem> writes() const { return writes_; }
  // Of a block that is not sealed, or that this step seals.
  FullPlace full_place(int run, int block, int layer, int kv_head) const;
  // One layer's blocks that this step begins and completes: no tail frame holds them.
  std::byte* staging() { return staging_.data(); }
  const std::byte* staging() const { return staging_.data(); }
  const UnitList& units(int layer) const { return lists_[list_of_group_[layout_.group_of(layer)]]; }
  Scratch scratch(int thread);
  RowState partial(int index);

  std::span<const ScoreRequest> requests() const { return requests_; }
  // The request for a run's scores, as an index.
  std::optional<int> request_of(int run) const { return request_of_run_[run]; }
  // Written by the first pass for rows that the second one scores.
  RowTotal& row_total(int64_t row, int q_head) {
    return reinterpret_cast<RowTotal*>(row_totals_.data())[row * limits_.q_heads + q_head];
  }
  // Of a unit that keeps its weights.
  KeptSpan kept(const Unit& unit, int span);

  // The row block that begins at row `first` of a run, where layers see `window` tokens: at most
  // kRowBlock rows, all of one residual group.
  RowBlock RowBlockAt(int run, int first, int window) const;

  // Counts a finished unit of a split; true for the last one, which then merges. The counter is
  // ready for the next layer afterwards.
  bool FinishUnit(int split, int units);

 private:
  template <typename Visit>
  void ForEachRowBlock(int window, Visit visit) const;
  void CheckRun(const SequenceRun& run) const;
  void AddWrites(int run);
  int FirstNewBlock(const SequenceRun& run) const;
  int SealedEnd(const SequenceRun& run) const;
  void BuildList(UnitList& list);
  struct Cut {
    int parts = 1;
    std::optional<int> first_kept;  // of the first KV head
  };
  void AddUnits(UnitList& list, const RowBlock& block, const Cut& cut);
  std::optional<int> TryReservePartials(const RowBlock& block);
  std::optional<int> TryReserveKept(const RowBlock& block);
  void AddScoreUnits(UnitList& list);

  KvLayout layout_;
  AttentionLimits limits_;
  std::vector<SequenceRun> runs_;
  std::vector<ScoreRequest> requests_;
  std::vector<std::optional<int>> request_of_run_;  // [runs]
  std::vector<WriteItem> writes_;
  std::vector<int> staged_;  // [runs] staging slot of the run's first new block
  int staging_slots_ = 0;
  Buffer staging_;                          // [staging_slots, kv_heads, f16 pair]
  std::vector<UnitList> lists_;             // one per distinct window
  std::vector<int> list_of_group_;          // [layer groups]
  int partials_used_ = 0;                   // while building a list
  std::vector<std::atomic<int>> finished_;  // [most splits of a list]
  size_t scratch_floats_ = 0;               // per thread
  Buffer scratch_;
  Buffer partial_values_;   // [kMaxPartials, head_dim]
  Buffer partial_sums_;     // [2, kMaxPartials] max and sum
  int kept_used_ = 0;       // while building a list
  std::vector<int> again_;  // requests of the second pass, likewise
  Buffer kept_weights_;     // [kMaxKept, kSpan]
  Buffer kept_max_;         // [kMaxKept]
  Buffer row_totals_;       // [max_rows, q_heads]
};

}  // namespace quire::kvstore
