// Request: what a client asked, as plain data. The door between the outside (server, commands) and
// the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kv/eviction.h"

namespace quire::sched {

// What the whole output has to be.
struct OutputConstraint {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kChoice, kGbnf };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // the schema as JSON, the pattern or the grammar
  std::vector<std::string> choices;  // kChoice

  bool operator==(const OutputConstraint&) const = default;
};

// How the next token is chosen. Defaults are the OpenAI API's.
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  int top_k = 0;             // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // divides/multiplies logits of prompt and output tokens
  float presence_penalty = 0.0f;    // subtracted once per token already in the output
  float frequency_penalty = 0.0f;   // subtracted per occurrence in the output
  std::vector<std::pair<TokenId, float>> logit_bias;
  // Tokens that lead away from it are not drawn; those that end the text only where it is complete.
  std::optional<OutputConstraint> constraint;
  std::vector<TokenId> allowed_token_ids;  // no other comes; empty: all may
  // The last token of one does not come where the output ends with its others. None is empty.
  std::vector<std::vector<TokenId>> bad_words;
  uint64_t seed = 0;  // with (sequence index, position) the whole source of randomness

  int max_tokens = 16;
  int min_tokens = 0;  // no end of text, stop id or stop string before
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop;  // matched anywhere in the text, across tokens
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;            // control tokens give no text
  std::vector<TokenId> shown_special_tokens;  // but these do
  // Alternatives told with every generated token; absent: not even its own log probability.
  std::optional<int> logprobs;
  std::optional<int> prompt_logprobs;  // of prompt tokens; such requests never read the cache
};

// The tokens that end a sequence: its own stop ids, and the model's end of text unless ignored.
inline std::vector<TokenId> EndTokens(const SamplingParams& sampling,
                                      std::span<const TokenId> eos_ids) {
  std::vector<TokenId> ends = sampling.stop_token_ids;
  if (!sampling.ignore_eos) ends.insert(ends.end(), eos_ids.begin(), eos_ids.end());
  return ends;
}

// Beam search in place of sampling: `width` beams (best_of, else n) are followed, the best n
// returned.
struct BeamSearchParams {
  // The score of a hypothesis is the sum of its log probabilities / length^length_penalty.
  float length_penalty = 1.0f;
  // When a request with `width` finished hypotheses stops.
  enum class EarlyStopping {
    kOff,    // no running beam could, at its present length, beat the worst of them
    kOn,     // at once
    kNever,  // no running beam can beat it at any length up to max_tokens
  };
  EarlyStopping early_stopping = EarlyStopping::kOff;
};

// A request expands to best_of (else n) sequences that share the prompt's blocks.
struct Request {
  std::string id;
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  int n = 1;
  std::optional<int> best_of;  // sequences generated; >= n. The caller picks the best n of them
  std::optional<BeamSearchParams> beam_search;
  int priority = 0;  // lower runs first, as in vLLM
  std::string cache_salt;
  int adapter = 0;               // requests for different adapters share no KV
  kv::EvictionOptions eviction;  // which tokens keep their KV where not all may
  // Said whatever the model thinks, to learn what it thinks (sampling.logprobs); empty: it decides.
  std::vector<TokenId> forced_output;

  int sequences() const { return best_of.value_or(n); }
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

}  // namespace quire::sched
