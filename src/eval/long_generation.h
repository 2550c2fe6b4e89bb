// Long generation: how far a greedy continuation goes along with f32's, with each way to store keys
// and values. Small errors that no single step shows add up over hundreds of tokens.
//
// Two continuations that differ once are different texts from there on, so a first divergence says
// more about how often two tokens are almost equally likely than about how good the text is. What
// each variant would say next if it had said what f32 said, is told beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/model_loader.h"
#include "eval/kv_variant.h"

namespace quire::eval {

struct LongGenerationOptions {
  int tokens = 512;     // generated per prompt; an end of text does not stop
  KvVariant reference;  // f32
  std::vector<KvVariant> variants;
};

struct LongGenerationScore {
  KvVariant variant;
  KvCost cost;
  std::vector<int> equal_tokens;  // [prompts] generated tokens before the first that differs
  double agreement = 0;           // share of all positions with the token that f32 generated there
  double forced_agreement = 0;    // share with the same most likely token, given f32's text so far

  int identical() const;  // prompts continued as with f32 to the end
  double mean_equal() const;
  int tokens = 0;  // generated per prompt
};

struct LongGenerationReport {
  std::vector<std::vector<TokenId>> continuations;  // [prompts][tokens] with f32
  std::vector<LongGenerationScore> scores;          // the reference, then the variants
};

// `count` prompts of `length` tokens, BOS included where the tokenizer puts one, from places spread
// evenly over the text. kUsage if the text is too short for one.
Result<std::vector<std::vector<TokenId>>> CutPrompts(const text::Tokenizer& tokenizer,
                                                     std::string_view text, int count, int length);

// kUsage if prompt and continuation do not fit the model's context. `progress` gets the tokens
// generated so far, by all variants.
Result<LongGenerationReport> MeasureLongGeneration(const engine::LoadedModel& model,
                                                   std::span<const std::vector<TokenId>> prompts,
                                                   const LongGenerationOptions& options,
                                                   base::ThreadTeam& team,
                                                   const std::function<void(int64_t)>& progress);

}  // namespace quire::eval
