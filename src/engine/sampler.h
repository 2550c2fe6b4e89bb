// Sampler: logits to a token, as a pure function of its input. A batch, a preemption or another
// request never changes what is drawn.
//
// The order in which parameters act is vLLM's:
//   1. tokens not allowed (grammar mask) or banned (ends before min_tokens) get -inf;
//   2. logit bias is added;
//   3. repetition penalty r: tokens of prompt and output, logit / r if positive, else logit * r
//      (1909.05858); then frequency * count and presence, of the output alone, are subtracted;
//   4. temperature below 1e-5: the greatest logit, the lowest id among equals. Else the logits are
//      divided by the temperature;
//   5. min-p (2407.01082): tokens of less than min_p times the best one's probability go;
//   6. top-k: the k best stay, equal ones by lowest id;
//   7. top-p (1904.09751): of the rest, renormalised, the shortest leading run whose probability is
//      at least top_p stays (never fewer than one);
//   8. one uniform number of the key (seed, sequence index, position) picks among them, walking the
//      tokens by ascending id.
// Log probabilities are those of the raw logits, before step 1.
//
// A Sampler owns scratch memory for one vocabulary; have one per thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/token_counts.h"
#include "engine/top_selection.h"
#include "kernels/vector_kernels.h"
#include "sched/request.h"
#include "sched/step_plan.h"

namespace quire::engine {

// kUsage with one sentence if a parameter is out of its range for this vocabulary.
Status ValidateSampling(const sched::SamplingParams& params, int vocab_size);

// Whether `params` looks at a sequence's history.
bool NeedsCounts(const sched::SamplingParams& params);

// What randomness depends on: `position` is the one that the drawn token will have.
struct DrawKey {
  uint64_t seed = 0;
  int sequence_index = 0;
  int position = 0;
};

struct SampleInput {
  std::span<const float> logits;  // [vocab_size], raw
  const sched::SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;  // not null if NeedsCounts(*params)
  DrawKey key = {};
  std::span<const TokenId> banned = {};    // ends before min_tokens
  std::span<const uint32_t> allowed = {};  // bit t % 32 of word t / 32: t may come; empty: all may
};

struct SampledToken {
  TokenId token = 0;
  std::optional<float> logprob;          // if params->logprobs
  std::vector<sched::TokenLogprob> top;  // params->logprobs alternatives, best first
};

// The distribution that step 8 draws from: tokens by ascending id, with weights that sum to
// `total`.
struct Distribution {
  std::span<const Candidate> candidates;  // value: weight
  double total = 0.0;
};

class Sampler {
 public:
  Sampler(const kernels::VectorKernels& kernels, int vocab_size);

  // kInvalid if the logits have NaN or +inf; kContradiction if no token may come.
  Result<SampledToken> Sample(const SampleInput& input);

  // Steps 1 to 7 (with a temperature of 0: the one token). Valid until the next call.
  Result<Distribution> Filter(const SampleInput& input);

  // Log probabilities of the raw logits: of one token with `count` alternatives, or of the best.
  Result<SampledToken> Score(std::span<const float> logits, TokenId token, int count);
  Result<std::vector<sched::TokenLogprob>> TopLogprobs(std::span<const float> logits, int count);

 private:
  struct Adjusted {
    std::span<const float> logits;  // steps 1 to 3 done
    kernels::RowMax max;
  };
  Result<Adjusted> Adjust(const SampleInput& input);
  void ApplyMasks(const SampleInput& input);
  void ApplyPenalties(const SampleInput& input);
  void WeighAll(const Adjusted& adjusted, const sched::SamplingParams& params);
  void WeighTopK(const Adjusted& adjusted, const sched::SamplingParams& params);
  void KeepTopP(float top_p);
  Result<double> LogSumExp(std::span<const float> logits);
  void AppendTop(std::span<const float> logits, double log_sum, int count,
                 std::vector<sched::TokenLogprob>& top);
  Status AddLogprobs(std::span<const float> logits, int count, SampledToken& sampled);

  const kernels::VectorKernels& kernels_;
  std::vector<float> adjusted_;        // [vocab_size]
  std::vector<float> weights_;         // [vocab_size]
  std::vector<Candidate> candidates_;  // <= vocab_size
  std::vector<Candidate> rearranged_;  // <= vocab_size
  double left_out_ = 0.0;              // the weight of tokens that cannot be within top-p
};

}  // namespace quire::engine
