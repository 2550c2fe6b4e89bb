#include "engine/speculator.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/ngram_drafter.h"
#include "engine/suffix_drafter.h"

namespace quire::engine {
namespace {

constexpr double kPrior = 0.6;            // of a drafter nobody has seen yet
constexpr double kSequenceMemory = 0.95;  // of what a sequence's drafts were worth, per step
constexpr double kDrafterMemory = 0.98;   // the same over all sequences, per sequence and step
constexpr int kProbeIntervalFirst = 32;   // steps without drafts until one tries again
constexpr int kProbeIntervalLast = 1024;
constexpr int kProbeLength = 2;
constexpr int kPlainInterval = 64;  // steps with drafts until one goes without
// Measurements waver. Of many lengths one looks better than it is; those in use are known well.
// A batch has more of them, less to gain, and each sequence's text to be caught up with.
constexpr double kGainToStart = 1.10;
constexpr double kGainToStay = 1.03;
constexpr double kGainOfBatch = 1.20;  // times these
constexpr size_t kBatch = 8;

}  // namespace

Speculator::Speculator(const SpeculationOptions& options) : fixed_length_(options.tokens) {
  for (const DraftMethod method : options.methods) {
    switch (method) {
      case DraftMethod::kNgram:
        Add(std::make_unique<NgramDrafter>());
        break;
      case DraftMethod::kSuffix:
        Add(std::make_unique<SuffixDrafter>(options.sharing));
        break;
    }
  }
}

void Speculator::Add(std::unique_ptr<Drafter> drafter) {
  drafters_.push_back(
      {.drafter = std::move(drafter), .acceptance = {}, .probe_interval = kProbeIntervalFirst});
}

Speculator::History& Speculator::HistoryOf(SequenceId id) {
  if (histories_.size() <= static_cast<size_t>(id.value)) histories_.resize(id.value + 1);
  History& history = histories_[id.value];
  history.acceptance.resize(drafters_.size());
  return history;
}

void Speculator::CollectJobs(const sched::Scheduler& scheduler,
                             base::FunctionRef<bool(SequenceId)> skip) {
  jobs_.clear();
  most_.clear();
  rows_ = 0;
  for (const SequenceId id : scheduler.running()) {
    if (skip(id)) continue;
    const sched::Sequence& sequence = scheduler.sequence(id);
    rows_ += sequence.uncomputed();
    const int most = std::min(scheduler.DraftsMax(id), fixed_length_.value_or(kLengthMax));
    if (most == 0) continue;
    jobs_.push_back({&sequence, &scheduler.request(sequence.request).request, most, {}});
    most_.push_back(most);
  }
  rows_ = std::min(rows_, scheduler.options().max_num_batched_tokens);
}

void Speculator::Propose(sched::Scheduler& scheduler, base::FunctionRef<bool(SequenceId)> skip,
                         base::FunctionRef<void(SequenceId, std::vector<TokenId>&)> trim) {
  base::Stopwatch watch;
  CollectJobs(scheduler, skip);
  const bool plain =
      !fixed_length_ && (steps_on_ >= kPlainInterval || (rows_ > 0 && !times_.Known(rows_)));
  bool drafted = false;
  for (size_t i = 0; i < drafters_.size() && !plain; ++i) {
    SetLengths(i);
    if (asked_.empty()) continue;
    watch.Lap();
    drafters_[i].drafter->Propose(asked_);
    stats_.propose_s += watch.Lap();
    for (DraftJob* job : asked_) {
      trim(job->sequence->id, job->drafts);
      rows_ += static_cast<int>(job->drafts.size());
      drafted |= !job->drafts.empty();
      HistoryOf(job->sequence->id).drafted_by = i;
    }
  }
  steps_on_ = drafted ? steps_on_ + 1 : 0;
  for (const DraftJob& job : jobs_) scheduler.Propose(job.sequence->id, job.drafts);
}

// Asks a drafter for those that have no drafts yet, each for as many as pay.
void Speculator::SetLengths(size_t drafter) {
  asked_.clear();
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (!jobs_[i].drafts.empty()) continue;
    jobs_[i].drafts_max = most_[i];
    asked_.push_back(&jobs_[i]);
  }
  if (fixed_length_ || asked_.empty()) return;
  Entry& entry = drafters_[drafter];
  const double prior = entry.acceptance.Share(kPrior);
  wishes_.clear();
  for (const DraftJob* job : asked_) {
    const Acceptance& own = HistoryOf(job->sequence->id).acceptance[drafter];
    wishes_.push_back({own.Share(prior), job->drafts_max, 0});
  }
  const double gain_least =
      (entry.pays ? kGainToStay : kGainToStart) * (jobs_.size() >= kBatch ? kGainOfBatch : 1.0);
  PlanDraftLengths(wishes_, rows_, times_, entry.drafter->PassSeconds(), gain_least);
  entry.pays = std::ranges::any_of(wishes_, [](const DraftWish& w) { return w.length > 0; });
  if (entry.pays) {
    entry.steps_off = 0;
    entry.probe_interval = kProbeIntervalFirst;
  } else if (++entry.steps_off >= entry.probe_interval) {
    DraftWish& probed = wishes_[probed_++ % wishes_.size()];
    probed.length = std::min(probed.most, kProbeLength);
    entry.steps_off = 0;
    entry.probe_interval = std::min(2 * entry.probe_interval, kProbeIntervalLast);
  }
  size_t kept = 0;
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (wishes_[i].length == 0) continue;
    asked_[i]->drafts_max = wishes_[i].length;
    asked_[kept++] = asked_[i];
  }
  asked_.resize(kept);
}

void Speculator::Observe(SequenceId sequence, int drafted, int accepted) {
  ++stats_.drafts;
  stats_.draft_tokens += drafted;
  stats_.accepted_tokens += accepted;
  for (int i = 0; i < accepted; ++i) {
    ++stats_.accepted_at[std::min(i, SpeculationStats::kPositions - 1)];
  }
  History& history = HistoryOf(sequence);
  const size_t by = history.drafted_by;
  history.acceptance[by].Observe(drafted, accepted, kSequenceMemory);
  drafters_[by].acceptance.Observe(drafted, accepted, kDrafterMemory);
}

void Speculator::Forget(const sched::Sequence& sequence, const sched::Request& request) {
  for (const Entry& entry : drafters_) entry.drafter->Forget(sequence, request);
  const auto id = static_cast<size_t>(sequence.id.value);
  if (id < histories_.size()) histories_[id] = History();
}

}  // namespace quire::engine
