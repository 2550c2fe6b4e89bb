#include "kv/eviction.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace quire::kv {
namespace {

constexpr int kMost = 1 << 24;    // of any number in EvictionOptions
constexpr int kPooledMost = 255;  // the sums over them are taken one by one

struct NamedPolicy {
  EvictionPolicy policy;
  std::string_view name;
};
constexpr NamedPolicy kNames[] = {{EvictionPolicy::kNone, "none"},
                                  {EvictionPolicy::kStreaming, "streaming"},
                                  {EvictionPolicy::kH2o, "h2o"},
                                  {EvictionPolicy::kSnapKv, "snapkv"},
                                  {EvictionPolicy::kTova, "tova"}};

int DefaultRecent(const EvictionOptions& options, int budget, int first) {
  switch (options.policy) {
    case EvictionPolicy::kStreaming:
      return budget - first;
    case EvictionPolicy::kH2o:
      return (budget + 1) / 2;
    case EvictionPolicy::kSnapKv:
      return options.observed;
    default:
      return 1;
  }
}

// Orders slots: what is kept whatever it scored first, then by score, then by age.
class Ranking {
 public:
  Ranking(const EvictionRule& rule, const ScoredSlots& from) : rule_(rule), from_(from) {
    newest_ = *std::ranges::max_element(from.positions);
  }

  bool StaysBefore(int a, int b) const {
    const int x = from_.positions[a];
    const int y = from_.positions[b];
    if (IsAlwaysKept(x) != IsAlwaysKept(y)) return IsAlwaysKept(x);
    const float x_score = ScoreOf(a);
    const float y_score = ScoreOf(b);
    return x_score != y_score ? x_score > y_score : x > y;
  }

 private:
  bool IsAlwaysKept(int position) const {
    return position < rule_.first || position > newest_ - rule_.recent;
  }

  float ScoreOf(int slot) const {
    if (rule_.policy == EvictionPolicy::kStreaming) return 0.0f;
    const float score = from_.scores[slot];
    if (!(score == score)) return 0.0f;  // a NaN must not unsettle the order
    const bool per_query =
        rule_.policy == EvictionPolicy::kH2o && rule_.heavy_hitters == HeavyHitters::kSumPerQuery;
    if (!per_query) return score;
    return score / static_cast<float>(newest_ - from_.positions[slot] + 1);
  }

  const EvictionRule& rule_;
  const ScoredSlots& from_;
  int newest_ = 0;
};

}  // namespace

std::string_view NameOf(EvictionPolicy policy) {
  return std::ranges::find(kNames, policy, &NamedPolicy::policy)->name;
}

Result<EvictionPolicy> ParseEvictionPolicy(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &NamedPolicy::name);
  if (found != std::end(kNames)) return found->policy;
  return MakeError(ErrorKind::kUsage,
                   "there is no eviction policy '{}'; none, streaming, h2o, snapkv and tova are "
                   "known",
                   name);
}

Status ValidateEviction(const EvictionOptions& options) {
  if (!options.evicts()) return Ok{};
  const auto within = [](const char* name, int value, int least, int most = kMost) -> Status {
    if (value >= least && value <= most) return Ok{};
    return MakeError(ErrorKind::kUsage, "the eviction policy's {} is {}; {} to {} are possible",
                     name, value, least, most);
  };
  QUIRE_RETURN_IF_ERROR(within("budget", options.budget_tokens, 0));
  if (options.budget_tokens == 0 && !(options.budget_ratio > 0 && options.budget_ratio <= 1)) {
    return MakeError(ErrorKind::kUsage,
                     "the eviction policy's budget is {} of the prompt; a share above 0 and up to "
                     "1, or a number of tokens, is needed",
                     options.budget_ratio);
  }
  QUIRE_RETURN_IF_ERROR(within("sinks", options.sinks, 0));
  QUIRE_RETURN_IF_ERROR(within("pinned prefix", options.pinned, 0));
  QUIRE_RETURN_IF_ERROR(within("recent tokens", options.recent.value_or(1), 1));
  QUIRE_RETURN_IF_ERROR(within("observed queries", options.observed, 1));
  QUIRE_RETURN_IF_ERROR(within("pooled neighbours", options.pooled, 1, kPooledMost));
  if (options.pooled % 2 == 0) {
    return MakeError(ErrorKind::kUsage,
                     "the eviction policy pools {} neighbours; an odd number is "
                     "needed",
                     options.pooled);
  }
  const int first = std::max(options.sinks, options.pinned);
  if (options.budget_tokens > 0 && first + options.recent.value_or(1) > options.budget_tokens) {
    return MakeError(ErrorKind::kUsage,
                     "a budget of {} tokens does not hold the {} first and {} recent tokens that "
                     "are always kept; raise it or keep fewer of these",
                     options.budget_tokens, first, options.recent.value_or(1));
  }
  return Ok{};
}

EvictionRule RuleFor(const EvictionOptions& options, int prompt_tokens,
                     const EvictionGranularity& granularity) {
  QUIRE_CHECK(options.evicts());
  EvictionRule rule{.policy = options.policy,
                    .slack = std::max(1, granularity.residual_tokens),
                    .first = std::max({options.sinks, options.pinned, granularity.sinks}),
                    .heavy_hitters = options.heavy_hitters,
                    .observed = options.observed,
                    .pooled = options.pooled};
  const double share = std::ceil(options.budget_ratio * prompt_tokens);
  const int asked = options.budget_tokens > 0 ? options.budget_tokens : static_cast<int>(share);
  // What is always kept has room, even in a share of a short prompt.
  rule.budget = std::max(asked, rule.first + std::max(1, options.recent.value_or(1)));
  if (granularity.residual_tokens > 0) {
    // Rounded down, but never below what is always kept.
    const int always = rule.first + std::max(1, options.recent.value_or(1));
    const int groups = std::max(rule.budget / granularity.residual_tokens,
                                (always - 1) / granularity.residual_tokens + 1);
    rule.budget = groups * granularity.residual_tokens;
  }
  const int recent = options.recent.value_or(DefaultRecent(options, rule.budget, rule.first));
  rule.recent = std::clamp(recent, 1, rule.budget - rule.first);
  return rule;
}

void SelectKept(const EvictionRule& rule, const ScoredSlots& from, std::span<int> slots,
                std::vector<int>& scratch) {
  const size_t count = from.positions.size();
  QUIRE_CHECK_LE(slots.size(), count);
  scratch.resize(count);
  for (size_t i = 0; i < count; ++i) scratch[i] = static_cast<int>(i);
  const Ranking ranking(rule, from);
  const auto end = scratch.begin() + static_cast<ptrdiff_t>(slots.size());
  std::nth_element(scratch.begin(), end, scratch.end(),
                   [&](int a, int b) { return ranking.StaysBefore(a, b); });
  std::copy(scratch.begin(), end, slots.begin());
  std::ranges::sort(slots);
}

int SelectVictim(const EvictionRule& rule, const ScoredSlots& from) {
  const Ranking ranking(rule, from);
  int victim = 0;
  for (int slot = 1; slot < static_cast<int>(from.positions.size()); ++slot) {
    if (ranking.StaysBefore(victim, slot)) victim = slot;
  }
  return victim;
}

void PoolScores(const EvictionRule& rule, std::span<float> scores, std::vector<float>& scratch) {
  const auto pooled = std::max<ptrdiff_t>(0, std::ssize(scores) - rule.observed);
  scratch.assign(scores.begin(), scores.begin() + pooled);
  const ptrdiff_t reach = rule.pooled / 2;
  for (ptrdiff_t i = 0; i < pooled; ++i) {
    float sum = 0.0f;
    for (ptrdiff_t j = std::max<ptrdiff_t>(0, i - reach); j <= std::min(pooled - 1, i + reach);
         ++j) {
      sum += scratch[j];
    }
    scores[i] = sum / static_cast<float>(rule.pooled);
  }
}

}  // namespace quire::kv
