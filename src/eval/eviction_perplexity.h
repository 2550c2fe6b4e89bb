// Perplexity of a text whose windows give tokens up: what an eviction policy costs.
//
// Windows are those of perplexity.h. The first `prompt` tokens of each (BOS included) are its
// prompt, computed whole; then tokens are given up as the policy says, and the others are scored
// one by one, as if they were generated. So every scored token has at least the prompt before it:
//
//     window   [prompt ............][scored ............]
//     kept     all of it             the budget, and what comes in between evictions
//
// The same tokens are scored by the full cache, in the same way. Windows go through an Engine as
// requests do, several in a batch; none finds anything in a prefix cache.
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

struct EvictionPerplexityOptions {
  int context = 512;              // tokens of a window, BOS included
  int prompt = 256;               // of these, computed before anything is given up
  int stride = 256;               // tokens of text from one window to the next
  int batch = 16;                 // windows computed together; no number but the time depends on it
  std::vector<KvVariant> codecs;  // each with the full cache, then with every policy
  std::vector<EvictionVariant> evictions;  // that evict
};

struct EvictionScore {
  KvVariant variant;
  KvCost cost;
  double mean_nll = 0;  // negative log likelihood per scored token, nats
  double perplexity = 0;
  // Over the full cache of the same codec (perplexity / its perplexity - 1), and the standard error
  // of that.
  double rise = 0;
  double rise_error = 0;
  double tokens_kept = 0;   // that had their KV when a window ended, on average
  double seconds = 0;       // of computing the windows
  double tokens_per_s = 0;  // computed tokens, prompts included
};

struct EvictionPerplexityReport {
  int64_t text_tokens = 0;
  int64_t scored_tokens = 0;
  int64_t windows = 0;
  bool bos = false;                   // windows begin with BOS
  std::vector<EvictionScore> scores;  // of each codec: the full cache, then each policy
};

// `tokens`: the text's, without BOS. kUsage where the options cannot work, and what the engine
// refuses. `progress` gets the tokens scored so far and how many there will be.
Result<EvictionPerplexityReport> MeasureEvictionPerplexity(
    const engine::LoadedModel& model, std::span<const TokenId> tokens,
    const EvictionPerplexityOptions& options, base::ThreadTeam& team,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace quire::eval
