// Perplexity of a text, and how far the predictions of a KV cache's codecs are from those with f32.
//
// The text is tokenized as a whole, without special tokens, and read in windows:
//
//   window w = BOS (for models whose tokenizer puts one before a text), then tokens of the text
//              from w * stride on, `context` tokens with BOS. The last window may be shorter.
//   scored   = every token of a window but its first, once: in the first window that has it with
//              at least `min_context` tokens of text before it in the window
//
// So every token after the first window is predicted from at least context - stride tokens.
// llama.cpp's perplexity at context C is `context` C, `stride` C, `min_context` C / 2 (it also
// drops an incomplete last window).
//
// A window's logits with f32 stay in memory while the codecs compute the same window; nothing else
// is kept but a number per token.
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

struct PerplexityOptions {
  int context = 512;    // tokens of a window, BOS included
  int stride = 256;     // tokens of text from one window to the next
  int min_context = 0;  // tokens of text that a scored token has before it
  int chunk = 256;      // tokens per forward pass; the numbers do not depend on it
  KvVariant reference;  // f32
  std::vector<KvVariant> variants;
};

struct VariantScore {
  KvVariant variant;
  KvCost cost;
  double mean_nll = 0;  // negative log likelihood per scored token, nats
  double perplexity = 0;
  // Relative to f32: perplexity / perplexity_f32 - 1, and the standard error of that from the
  // scatter of the tokens' differences.
  double rise = 0;
  double rise_error = 0;
  double kl_mean = 0;  // KL(f32 || this) per scored token, nats
  double kl_p99 = 0;
  double top1_agreement = 0;  // share of scored tokens where the most likely token is f32's
  double seconds = 0;         // of computing the windows, without scoring
  double tokens_per_s = 0;    // computed tokens, whether scored or not
};

struct PerplexityReport {
  int64_t text_tokens = 0;
  int64_t scored_tokens = 0;
  int64_t windows = 0;
  bool bos = false;                  // windows begin with BOS
  std::vector<VariantScore> scores;  // the reference, then options.variants in order
};

// Windows done, of how many, and tokens computed by now.
struct PerplexityProgress {
  int64_t done = 0;
  int64_t total = 0;
  int64_t tokens = 0;
};

// One window of the plan. Text tokens [first, first + count) follow BOS; those from
// first_scored on are scored.
struct Window {
  int64_t first = 0;
  int count = 0;
  int64_t first_scored = 0;
};

// `bos_tokens`: 1 or 0. kUsage where the options cannot work or the text does not fill one window.
Result<std::vector<Window>> PlanWindows(int64_t text_tokens, int bos_tokens,
                                        const PerplexityOptions& options);

// `tokens`: the text's, without BOS. kUsage if a window does not fit the model's context, and as
// PlanWindows.
Result<PerplexityReport> MeasurePerplexity(
    const engine::LoadedModel& model, std::span<const TokenId> tokens,
    const PerplexityOptions& options, base::ThreadTeam& team,
    const std::function<void(const PerplexityProgress&)>& progress);

}  // namespace quire::eval
