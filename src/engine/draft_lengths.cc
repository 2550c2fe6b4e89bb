#include "engine/draft_lengths.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire::engine {
namespace {

constexpr double kNewShare = 0.1;     // weight of a measurement against all before it,
constexpr double kLateShare = 0.3;    // and of one that comes after long
constexpr int kLate = 20;             // other measurements
constexpr double kOutlier = 1.5;      // times the expected: a step that was interrupted
constexpr int kTrusted = 3;           // measurements that others may be compared with
constexpr double kRowShare = 0.1;     // of a step of one row, what another row costs until measured
constexpr double kHopeless = 0.7;     // of plain decoding's rate: more drafts will not do either
constexpr double kPriorDrafts = 6.0;  // a prior weighs as much as so many drafts

}  // namespace

int StepTimes::IndexOf(int rows) {
  return rows <= kSingle ? rows - 1 : kSingle + (rows - kSingle - 1) / kTogether;
}

void StepTimes::Observe(int rows, double seconds) {
  if (rows < 1 || rows > kRowsMax) return;
  Mean& mean = means_[IndexOf(rows)];
  if (mean.count > 0) seconds = std::min(seconds, kOutlier * mean.seconds);
  ++measurements_;
  const double usual = measurements_ - mean.last > kLate ? kLateShare : kNewShare;
  const double share = std::max(usual, 1.0 / (1 + mean.count));
  mean.rows += share * (rows - mean.rows);
  mean.seconds += share * (seconds - mean.seconds);
  ++mean.count;
  mean.last = measurements_;
}

bool StepTimes::Known(int rows) const {
  return rows >= 1 && rows <= kRowsMax && means_[IndexOf(rows)].count >= kTrusted;
}

double StepTimes::Seconds(int rows) const {
  const int index = IndexOf(std::clamp(rows, 1, kRowsMax));
  if (means_[index].count > 0) return means_[index].seconds;
  int below = index - 1;
  while (below >= 0 && means_[below].count == 0) --below;
  int above = index + 1;
  while (above < kMeans && means_[above].count == 0) ++above;
  if (below < 0 && above == kMeans) return 0;
  if (below >= 0 && above < kMeans) {
    const Mean& low = means_[below];
    const Mean& high = means_[above];
    return std::lerp(low.seconds, high.seconds, (rows - low.rows) / (high.rows - low.rows));
  }
  const Mean& nearest = means_[below >= 0 ? below : above];
  return nearest.seconds * (1 + kRowShare * rows) / (1 + kRowShare * nearest.rows);
}

double Acceptance::Share(double prior) const {
  return (right_ + kPriorDrafts * prior) / (right_ + wrong_ + kPriorDrafts);
}

void Acceptance::Observe(int drafted, int accepted, double memory) {
  right_ = memory * right_ + accepted;
  wrong_ = memory * wrong_ + (accepted < drafted ? 1 : 0);
}

void PlanDraftLengths(std::span<DraftWish> wishes, int rows, const StepTimes& times,
                      double pass_seconds, double gain_least) {
  struct Candidate {
    double probability;
    size_t wish;
    int length;
    bool operator<(const Candidate& other) const {
      return std::pair(probability, other.wish) < std::pair(other.probability, wish);
    }
  };
  std::vector<Candidate> candidates;  // a heap
  for (size_t i = 0; i < wishes.size(); ++i) {
    wishes[i].length = 0;
    if (wishes[i].most > 0) candidates.push_back({wishes[i].acceptance, i, 1});
  }
  if (!times.Known(rows)) return;
  std::make_heap(candidates.begin(), candidates.end());
  const double plain_rate = rows / times.Seconds(rows);
  double best_rate = gain_least * plain_rate;
  double tokens = rows;
  size_t best = 0;
  int passes = 0;
  std::vector<Candidate> drafts;  // in order of probability
  while (!candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end());
    const Candidate next = candidates.back();
    candidates.pop_back();
    drafts.push_back(next);
    tokens += next.probability;
    passes = std::max(passes, next.length);
    const double seconds =
        times.Seconds(rows + static_cast<int>(drafts.size())) + passes * pass_seconds;
    const double rate = tokens / seconds;
    if (rate > best_rate) {
      best_rate = rate;
      best = drafts.size();
    } else if (rate < kHopeless * plain_rate) {
      break;
    }
    const DraftWish& wish = wishes[next.wish];
    if (next.length == wish.most) continue;
    candidates.push_back({next.probability * wish.acceptance, next.wish, next.length + 1});
    std::push_heap(candidates.begin(), candidates.end());
  }
  for (size_t i = 0; i < best; ++i) wishes[drafts[i].wish].length = drafts[i].length;
}

}  // namespace quire::engine
