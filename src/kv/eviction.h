// Token eviction: which of a sequence's tokens keep their KV when it may hold only so many. The
// decision alone, from scores and positions; who gathers scores: kvstore/attention_scores.h, who
// moves bytes: kvstore/repack_kv.h, who says when: Scheduler.
//
// A sequence that evicts lives in slots: its lease counts the tokens that are left. All layers and
// KV heads keep equally many, each its own:
//
//     sequence     0 1 2 3 4 5 6 7 8 9 ...          positions, which RoPE knows
//     layer, head  [0][1][4][7][8][9] slots 0..     what is left of them
//
//   none       everything is kept
//   streaming  the first tokens and the newest (StreamingLLM, 2309.17453)
//   h2o        the newest, and of the others those that got the most attention, summed over all
//              queries so far (heavy hitters, 2306.14048)
//   snapkv     the prompt's last `observed` tokens, and of the others those that got the most
//              attention from them, smoothed over neighbours (2404.14469). What is generated after
//              it counts as more: prompt tokens make room for it, then the oldest of it goes
//   tova       those that the last query attended to most, averaged over a layer's heads
//              (2401.06104)
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::kv {

enum class EvictionPolicy { kNone, kStreaming, kH2o, kSnapKv, kTova };

inline constexpr EvictionPolicy kEvictionPolicies[] = {
    EvictionPolicy::kNone, EvictionPolicy::kStreaming, EvictionPolicy::kH2o,
    EvictionPolicy::kSnapKv, EvictionPolicy::kTova};

std::string_view NameOf(EvictionPolicy policy);
// kUsage with the names there are.
Result<EvictionPolicy> ParseEvictionPolicy(std::string_view name);

// Scores of tokens that were seen by many queries exceed those of tokens seen by few.
enum class HeavyHitters { kSum, kSumPerQuery };

// What a request, or the server's operator, asks for.
struct EvictionOptions {
  EvictionPolicy policy = EvictionPolicy::kNone;
  int budget_tokens = 0;      // kept at most; 0: budget_ratio says
  double budget_ratio = 0.2;  // of the prompt's tokens, in (0, 1]
  int sinks = 4;              // first tokens that are always kept
  int pinned = 0;             // as sinks: a system prompt, say
  std::optional<int> recent;  // newest tokens that are always kept; default: half of the budget
                              // (h2o), `observed` (snapkv), 1 (tova), all but the sinks (streaming)
  HeavyHitters heavy_hitters = HeavyHitters::kSum;  // h2o
  int observed = 32;                                // snapkv: queries that score
  int pooled = 5;                                   // snapkv: neighbours averaged, odd

  bool evicts() const { return policy != EvictionPolicy::kNone; }
  bool operator==(const EvictionOptions&) const = default;
};

// kUsage with one sentence if a number is out of its range.
Status ValidateEviction(const EvictionOptions& options);

// The options for one sequence.
struct EvictionRule {
  EvictionPolicy policy = EvictionPolicy::kNone;
  int budget = 0;  // slots after an eviction
  int slack = 1;   // slots above the budget at which a growing sequence evicts
  int first = 0;   // positions below are always kept
  int recent = 0;  // newest tokens that are always kept; first + recent <= budget
  HeavyHitters heavy_hitters = HeavyHitters::kSum;
  int observed = 0;
  int pooled = 1;

  int slots_max() const { return budget + slack; }
  // Whether a sequence that has `slots` slots gives tokens up: once its prompt is computed, and
  // after every step from then on.
  bool EvictsPrompt(int slots) const { return slots > budget; }
  bool EvictsGrown(int slots) const { return slots >= slots_max(); }
  bool operator==(const EvictionRule&) const = default;
};

// How the cache stores tokens, as far as it matters for eviction.
struct EvictionGranularity {
  int residual_tokens = 0;  // tokens are given up so many at a time; 0: one by one
  int sinks = 0;            // first tokens that lie in frames of their own
};

// Rounds the budget to whole residual groups (down, at least one), so that after an eviction no
// group is open. Valid options that evict.
EvictionRule RuleFor(const EvictionOptions& options, int prompt_tokens,
                     const EvictionGranularity& granularity);

// The score of a token that nothing has scored: it stays before all that have one.
inline constexpr float kUnscored = std::numeric_limits<float>::infinity();

// One head's slots: what they hold and how they scored. Slots need not be in order of position.
struct ScoredSlots {
  std::span<const float> scores;   // [slots]; kUnscored: none yet; not read for streaming
  std::span<const int> positions;  // [slots], distinct
};

// The `kept` slots that stay, ascending, into `slots` [kept]. Of tokens that scored the same the
// newer stays. `scratch` is memory to work in.
void SelectKept(const EvictionRule& rule, const ScoredSlots& from, std::span<int> slots,
                std::vector<int>& scratch);

// The slot that SelectKept leaves out when it keeps all but one.
int SelectVictim(const EvictionRule& rule, const ScoredSlots& from);

// SnapKV: replaces every score but the `observed` last by the average over its `pooled` neighbours
// (those beyond the edges count as 0).
void PoolScores(const EvictionRule& rule, std::span<float> scores, std::vector<float>& scratch);

}  // namespace quire::kv
