#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"

namespace quire::engine {
namespace {

using sched::SamplingParams;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;

bool IsGreedy(const SamplingParams& params) {
  return params.temperature < kGreedyBelow;
}

bool ChangesLogits(const SampleInput& input) {
  return !input.allowed.empty() || !input.banned.empty() || !input.params->logit_bias.empty() ||
         NeedsCounts(*input.params);
}

Status CheckRange(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return Ok{};
  return MakeError(ErrorKind::kUsage, "{} is {}; it must be between {} and {}.", name, value, low,
                   high);
}

Status CheckTokens(const SamplingParams& params, int vocab_size) {
  auto unknown = [&](TokenId token) { return token < 0 || token >= vocab_size; };
  for (const auto& [token, bias] : params.logit_bias) {
    if (unknown(token)) {
      return MakeError(ErrorKind::kUsage,
                       "logit_bias names token {}, but the vocabulary has the ids 0 to {}.", token,
                       vocab_size - 1);
    }
    QUIRE_RETURN_IF_ERROR(CheckRange("a logit_bias", bias, -100.0f, 100.0f));
  }
  const auto check = [&](std::string_view name, std::span<const TokenId> tokens) -> Status {
    const auto bad = std::ranges::find_if(tokens, unknown);
    if (bad == tokens.end()) return Ok{};
    return MakeError(ErrorKind::kUsage,
                     "{} names token {}, but the vocabulary has the ids 0 to {}.", name, *bad,
                     vocab_size - 1);
  };
  QUIRE_RETURN_IF_ERROR(check("stop_token_ids", params.stop_token_ids));
  QUIRE_RETURN_IF_ERROR(check("allowed_token_ids", params.allowed_token_ids));
  for (const std::vector<TokenId>& word : params.bad_words) {
    if (word.empty()) return MakeError(ErrorKind::kUsage, "bad_words holds an empty word.");
    QUIRE_RETURN_IF_ERROR(check("bad_words", word));
  }
  return Ok{};
}

double SumOfWeights(std::span<const Candidate> candidates) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.value;
  return total;
}

TokenId Draw(const Distribution& distribution, const DrawKey& key) {
  base::CounterRng rng(key.seed, static_cast<uint64_t>(key.sequence_index),
                       static_cast<uint64_t>(key.position));
  double target = rng.NextUnit() * distribution.total;
  double passed = 0.0;
  TokenId chosen = distribution.candidates.front().token;
  for (const Candidate& candidate : distribution.candidates) {
    if (candidate.value > 0.0f) chosen = candidate.token;
    passed += candidate.value;
    if (passed > target) break;
  }
  return chosen;  // the last of weight where rounding lifted the target to the total
}

}  // namespace

Status ValidateSampling(const SamplingParams& params, int vocab_size) {
  QUIRE_RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0.0f, 100.0f));
  QUIRE_RETURN_IF_ERROR(CheckRange("top_p", params.top_p, 0.0f, 1.0f));
  QUIRE_RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0.0f, 1.0f));
  QUIRE_RETURN_IF_ERROR(CheckRange("repetition_penalty", params.repetition_penalty, 0.01f, 100.0f));
  QUIRE_RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty, -100.0f, 100.0f));
  QUIRE_RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty, -100.0f, 100.0f));
  if (params.top_k < 0) {
    return MakeError(ErrorKind::kUsage, "top_k is {}; it must be 0 (off) or more.", params.top_k);
  }
  if (params.max_tokens < 0 || params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    return MakeError(ErrorKind::kUsage,
                     "min_tokens is {} and max_tokens {}; 0 <= min_tokens <= max_tokens must hold.",
                     params.min_tokens, params.max_tokens);
  }
  return CheckTokens(params, vocab_size);
}

bool NeedsCounts(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

Sampler::Sampler(const kernels::VectorKernels& kernels, int vocab_size)
    : kernels_(kernels),
      adjusted_(static_cast<size_t>(vocab_size)),
      weights_(static_cast<size_t>(vocab_size)) {
  QUIRE_CHECK_GE(vocab_size, 1);
  candidates_.reserve(static_cast<size_t>(vocab_size));
  rearranged_.reserve(static_cast<size_t>(vocab_size));
}

void Sampler::ApplyMasks(const SampleInput& input) {
  if (!input.allowed.empty()) {
    QUIRE_CHECK_GE(input.allowed.size() * 32, adjusted_.size());
    for (size_t t = 0; t < adjusted_.size(); ++t) {
      if (((input.allowed[t / 32] >> (t % 32)) & 1u) == 0) adjusted_[t] = -kInfinity;
    }
  }
  for (TokenId token : input.banned) adjusted_[static_cast<size_t>(token)] = -kInfinity;
}

void Sampler::ApplyPenalties(const SampleInput& input) {
  const SamplingParams& params = *input.params;
  for (const auto& [token, bias] : params.logit_bias) {
    adjusted_[static_cast<size_t>(token)] += bias;
  }
  if (!NeedsCounts(params)) return;
  QUIRE_CHECK(input.counts != nullptr);
  for (const TokenCounts::Entry& entry : input.counts->entries()) {
    float& logit = adjusted_[static_cast<size_t>(entry.token)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(entry.output);
    if (entry.output > 0) logit -= params.presence_penalty;
  }
}

Result<Sampler::Adjusted> Sampler::Adjust(const SampleInput& input) {
  QUIRE_CHECK_EQ(input.logits.size(), adjusted_.size());
  Adjusted adjusted{input.logits, {}};
  if (ChangesLogits(input)) {
    std::copy(input.logits.begin(), input.logits.end(), adjusted_.begin());
    ApplyMasks(input);
    ApplyPenalties(input);
    adjusted.logits = adjusted_;
  }
  adjusted.max =
      kernels_.row_max(adjusted.logits.data(), static_cast<int64_t>(adjusted.logits.size()));
  if (adjusted.max.has_nan || adjusted.max.value == kInfinity) {
    return MakeError(ErrorKind::kInvalid,
                     "the model's logits are not finite; its weights or this text's activations "
                     "overflow.");
  }
  if (adjusted.max.value == -kInfinity) {
    return MakeError(ErrorKind::kContradiction,
                     "no token may come next: the request's constraint, bad_words and "
                     "allowed_token_ids exclude them all");
  }
  return adjusted;
}

void Sampler::WeighTopK(const Adjusted& adjusted, const SamplingParams& params) {
  SelectTop(kernels_, adjusted.logits, params.top_k, candidates_);
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  const auto count = static_cast<int64_t>(candidates_.size());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = (candidates_[i].value - adjusted.max.value) / params.temperature;
  }
  kernels_.exp({weights_.data(), 1, count});
  for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].value = weights_[i];
  std::erase_if(candidates_, [&](const Candidate& c) { return c.value < params.min_p; });
}

void Sampler::WeighAll(const Adjusted& adjusted, const SamplingParams& params) {
  const auto count = static_cast<int64_t>(weights_.size());
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i] = (adjusted.logits[i] - adjusted.max.value) / params.temperature;
  }
  kernels_.exp({weights_.data(), 1, count});
  double total = 0.0;
  for (float weight : weights_) total += weight < params.min_p ? 0.0 : weight;
  // All tokens below this bound together weigh less than top-p leaves out: they cannot stay.
  double leave_out = (1.0 - static_cast<double>(params.top_p)) * total * 0.999;
  auto bound = static_cast<float>(leave_out / static_cast<double>(count));
  bound = std::max({bound, params.min_p, std::numeric_limits<float>::denorm_min()});
  candidates_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] >= bound) candidates_.push_back({weights_[i], static_cast<TokenId>(i)});
  }
  left_out_ = total - SumOfWeights(candidates_);
}

void Sampler::KeepTopP(float top_p) {
  rearranged_ = candidates_;
  double mass = static_cast<double>(top_p) * (SumOfWeights(candidates_) + left_out_);
  Candidate last = LastOfTopMass(rearranged_, mass);
  std::erase_if(candidates_, [&](const Candidate& c) { return Precedes(last, c); });
}

Result<Distribution> Sampler::Filter(const SampleInput& input) {
  QUIRE_ASSIGN_OR_RETURN(Adjusted adjusted, Adjust(input));
  const SamplingParams& params = *input.params;
  if (IsGreedy(params)) {
    candidates_.assign(1, {1.0f, static_cast<TokenId>(adjusted.max.index)});
    return Distribution{candidates_, 1.0};
  }
  left_out_ = 0.0;
  if (params.top_k > 0 && params.top_k < static_cast<int>(adjusted_.size())) {
    WeighTopK(adjusted, params);
  } else {
    WeighAll(adjusted, params);
  }
  if (params.top_p < 1.0f) KeepTopP(params.top_p);
  return Distribution{candidates_, SumOfWeights(candidates_)};
}

Result<SampledToken> Sampler::Sample(const SampleInput& input) {
  QUIRE_ASSIGN_OR_RETURN(Distribution distribution, Filter(input));
  SampledToken sampled;
  sampled.token = distribution.candidates.size() == 1 ? distribution.candidates[0].token
                                                      : Draw(distribution, input.key);
  if (input.params->logprobs) {
    QUIRE_RETURN_IF_ERROR(AddLogprobs(input.logits, *input.params->logprobs, sampled));
  }
  return sampled;
}

Result<double> Sampler::LogSumExp(std::span<const float> logits) {
  QUIRE_CHECK_EQ(logits.size(), weights_.size());
  kernels::RowMax max = kernels_.row_max(logits.data(), static_cast<int64_t>(logits.size()));
  if (max.has_nan || !std::isfinite(max.value)) {
    return MakeError(ErrorKind::kInvalid, "the model's logits are not finite.");
  }
  for (size_t i = 0; i < logits.size(); ++i) weights_[i] = logits[i] - max.value;
  kernels_.exp({weights_.data(), 1, static_cast<int64_t>(weights_.size())});
  double total = 0.0;
  for (float weight : weights_) total += weight;
  return max.value + std::log(total);
}

void Sampler::AppendTop(std::span<const float> logits, double log_sum, int count,
                        std::vector<sched::TokenLogprob>& top) {
  SelectTop(kernels_, logits, count, candidates_);
  top.reserve(candidates_.size());
  for (const Candidate& c : candidates_) {
    top.push_back({c.token, static_cast<float>(c.value - log_sum)});
  }
}

Result<std::vector<sched::TokenLogprob>> Sampler::TopLogprobs(std::span<const float> logits,
                                                              int count) {
  QUIRE_ASSIGN_OR_RETURN(double log_sum, LogSumExp(logits));
  std::vector<sched::TokenLogprob> top;
  AppendTop(logits, log_sum, count, top);
  return top;
}

Status Sampler::AddLogprobs(std::span<const float> logits, int count, SampledToken& sampled) {
  QUIRE_ASSIGN_OR_RETURN(double log_sum, LogSumExp(logits));
  sampled.logprob = static_cast<float>(logits[static_cast<size_t>(sampled.token)] - log_sum);
  AppendTop(logits, log_sum, count, sampled.top);
  return Ok{};
}

Result<SampledToken> Sampler::Score(std::span<const float> logits, TokenId token, int count) {
  QUIRE_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  SampledToken scored;
  scored.token = token;
  QUIRE_RETURN_IF_ERROR(AddLogprobs(logits, count, scored));
  return scored;
}

}  // namespace quire::engine
