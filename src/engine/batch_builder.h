// BatchBuilder: turns the scheduler's plan into what the forward pass reads. Owns the arrays that
// the Batch views; they are allocated once for the largest step.
#pragma once

#include <optional>
#include <vector>

#include "kvstore/attention_plan.h"
#include "model/transformer.h"
#include "sched/scheduler.h"

namespace quire::engine {

// Which row of a plan's logits belongs to whom.
struct LogitRow {
  int run = 0;        // index into plan.sequences
  int position = 0;   // of the token in its sequence; the logits are about position + 1
  bool last = false;  // the run's last row, from which plan.samplers_of(run) draw
  // The token of the row after, if that is a draft: drawing another one here ends the run.
  std::optional<TokenId> draft;
};

class BatchBuilder {
 public:
  // `tables`: block tables of a sequence (KvLayout::table_count).
  BatchBuilder(const model::StepLimits& limits, int tables);

  // The views stay valid until the next Build, as long as the scheduler is not called.
  model::Batch Build(const sched::StepPlan& plan, const sched::Scheduler& scheduler);

  // One entry per row of the batch's logits, in the same order.
  std::span<const LogitRow> logit_rows() const { return logit_owners_; }

 private:
  int tables_per_run_;
  std::vector<TokenId> tokens_;              // [rows]
  std::vector<int> positions_;               // [rows]
  std::vector<kvstore::SequenceRun> runs_;   // [sequences]
  std::vector<kvstore::BlockTable> tables_;  // [sequences, tables_per_run]
  std::vector<int> logit_rows_;              // rows of the batch
  std::vector<LogitRow> logit_owners_;       // [logit rows]
};

}  // namespace quire::engine
