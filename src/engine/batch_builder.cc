#include "engine/batch_builder.h"

namespace quire::engine {

BatchBuilder::BatchBuilder(const model::StepLimits& limits, int tables) : tables_per_run_(tables) {
  tokens_.reserve(limits.rows);
  positions_.reserve(limits.rows);
  runs_.reserve(limits.sequences);
  tables_.reserve(static_cast<size_t>(limits.sequences) * tables);
  logit_rows_.reserve(limits.rows);
  logit_owners_.reserve(limits.rows);
}

namespace {

// StreamingLLM's window moves away from its sinks. Where tokens are given up in groups, those that
// it has left are still there.
void LimitSight(const sched::Sequence& sequence, kvstore::SequenceRun& run) {
  if (sequence.evicted == 0 || sequence.eviction->policy != kv::EvictionPolicy::kStreaming) return;
  run.window = sequence.eviction->budget + 1 - sequence.eviction->first;
  run.sinks = sequence.eviction->first;
  run.evicted = sequence.evicted;
}

}  // namespace

model::Batch BatchBuilder::Build(const sched::StepPlan& plan, const sched::Scheduler& scheduler) {
  tokens_.clear();
  positions_.clear();
  runs_.clear();
  tables_.clear();
  logit_rows_.clear();
  logit_owners_.clear();

  for (size_t index = 0; index < plan.sequences.size(); ++index) {
    const sched::ScheduledSequence& scheduled = plan.sequences[index];
    const sched::Sequence& sequence = scheduler.sequence(scheduled.sequence);
    const int first_row = static_cast<int>(tokens_.size());
    const int certain = scheduled.tokens - scheduled.drafts;

    for (int i = 0; i < scheduled.tokens; ++i) {
      const int position = scheduled.first_position + i;
      if (i >= scheduled.logits_begin) {
        logit_rows_.push_back(first_row + i);
        LogitRow owner{static_cast<int>(index), position, i == scheduled.tokens - 1, std::nullopt};
        if (i + 1 >= certain && !owner.last) owner.draft = sequence.drafts[i + 1 - certain];
        logit_owners_.push_back(owner);
      }
      tokens_.push_back(i < certain ? sequence.tokens[position] : sequence.drafts[i - certain]);
      positions_.push_back(position);
    }
    for (int table = 0; table < tables_per_run_; ++table) {
      tables_.push_back(kvstore::TableOf(sequence.lease, table));
    }
    // Attention counts what the lease holds; only RoPE knows positions.
    const int first_slot = scheduled.first_position - sequence.evicted;
    runs_.push_back({first_row, scheduled.tokens, first_slot, {}});
    LimitSight(sequence, runs_.back());
  }
  // Only now: tables_ has stopped growing.
  for (size_t run = 0; run < runs_.size(); ++run) {
    runs_[run].tables = std::span(tables_).subspan(run * tables_per_run_, tables_per_run_);
  }
  return {tokens_, positions_, runs_, logit_rows_};
}

}  // namespace quire::engine
