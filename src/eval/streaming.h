// Streaming: perplexity of a text far beyond the model's context. One sequence reads it token by
// token and keeps its first and its newest tokens (StreamingLLM, 2309.17453); beside it, for some
// tokens, the newest are computed afresh, as a server without eviction would have to for each.
//
//     prompt     the first `budget` tokens, BOS included
//     scored     all that follow, one by one
//     afresh     BOS and the `budget` - 1 tokens before the scored one, a prompt of their own
//
// The tokens that are computed afresh lie evenly spread over the scored ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/model_loader.h"
#include "eval/kv_variant.h"

namespace quire::eval {

struct StreamingOptions {
  int budget = 256;             // tokens that are kept
  std::vector<int> sinks = {};  // how many of them are the first; a row each
  int64_t tokens = 0;           // scored at most; 0: to the end of the text
  int recomputed = 200;         // how many of them are also scored afresh; 0: none
  std::vector<KvVariant> codecs = {};
};

struct StreamingScore {
  KvVariant variant;  // of the tokens computed afresh: without eviction
  KvCost cost;
  double tokens_kept = 0;  // when the text ended; afresh: computed for each token
  double perplexity = 0;   // of all scored tokens; 0 for those computed afresh
  // Of the tokens that were also computed afresh; 0 without any.
  double sampled_perplexity = 0;
  double sampled_rise = 0;        // over those afresh
  double sampled_rise_error = 0;  // the standard error of that
  double tokens_per_s = 0;        // scored tokens

  bool afresh() const { return !variant.eviction.options.evicts(); }
};

struct StreamingReport {
  int64_t text_tokens = 0;
  int64_t scored_tokens = 0;
  int64_t recomputed_tokens = 0;
  bool bos = false;
  std::vector<StreamingScore> scores;  // of each codec: every number of sinks, then those afresh
};

// `tokens`: the text's, without BOS. kUsage if they are not more than the budget, where the other
// options cannot work, and what the engine refuses. `progress` gets the tokens scored so far and
// how many there will be.
Result<StreamingReport> MeasureStreaming(
    const engine::LoadedModel& model, std::span<const TokenId> tokens,
    const StreamingOptions& options, base::ThreadTeam& team,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace quire::eval
