#include "engine/speculator.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/ngram_drafter.h"

namespace quire::engine {

Speculator::Speculator(const SpeculationOptions& options) : length_(options.tokens.value_or(4)) {
  for (const DraftMethod method : options.methods) {
    switch (method) {
      case DraftMethod::kNgram:
        Add(std::make_unique<NgramDrafter>());
        break;
    }
  }
}

void Speculator::Propose(sched::Scheduler& scheduler, base::FunctionRef<bool(SequenceId)> skip,
                         base::FunctionRef<void(SequenceId, std::vector<TokenId>&)> trim) {
  base::Stopwatch watch;
  jobs_.clear();
  for (const SequenceId id : scheduler.running()) {
    const int most = std::min(scheduler.DraftsMax(id), length_);
    if (most == 0 || skip(id)) continue;
    const sched::Sequence& sequence = scheduler.sequence(id);
    jobs_.push_back({&sequence, &scheduler.request(sequence.request).request, most, {}});
  }
  for (const auto& drafter : drafters_) {
    asked_.clear();
    for (DraftJob& job : jobs_) {
      if (job.drafts.empty()) asked_.push_back(&job);
    }
    if (!asked_.empty()) drafter->Propose(asked_);
  }
  for (DraftJob& job : jobs_) {
    const SequenceId id = job.sequence->id;
    trim(id, job.drafts);
    scheduler.Propose(id, job.drafts);
  }
  stats_.propose_s += watch.Lap();
}

void Speculator::Observe(SequenceId /*sequence*/, int drafted, int accepted) {
  ++stats_.drafts;
  stats_.draft_tokens += drafted;
  stats_.accepted_tokens += accepted;
  for (int i = 0; i < accepted; ++i) {
    ++stats_.accepted_at[std::min(i, SpeculationStats::kPositions - 1)];
  }
}

void Speculator::Forget(const sched::Sequence& sequence, const sched::Request& request) {
  for (const auto& drafter : drafters_) drafter->Forget(sequence, request);
}

}  // namespace quire::engine
