// What the engine tells about a sequence, as plain data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sched/request.h"
#include "sched/sequence.h"

namespace quire::engine {

// Natural logarithms of probabilities under the raw logits (before penalties and temperature).
struct TokenLogprobs {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // the most likely tokens, best first
};

// What stopped a sequence: nothing or the end of text, a stop token, or a stop string.
using StopReason = std::variant<std::monostate, TokenId, std::string>;

// Of one sequence.
struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // prompt tokens whose keys and values came from the cache
  int completion_tokens = 0;
  // Drafts that were verified: those that became completion tokens, and the others.
  int accepted_draft_tokens = 0;
  int rejected_draft_tokens = 0;
  // Of evicting sequences: tokens that had their KV at the end.
  std::optional<int> kv_tokens_kept = {};

  // Another sequence's of the same request: the prompt counts once.
  void AddSequence(const Usage& other) {
    completion_tokens += other.completion_tokens;
    accepted_draft_tokens += other.accepted_draft_tokens;
    rejected_draft_tokens += other.rejected_draft_tokens;
    if (other.kv_tokens_kept) {
      kv_tokens_kept = kv_tokens_kept.value_or(0) + *other.kv_tokens_kept;
    }
  }
};

// News of one sequence after a step. The pieces of text of all updates, concatenated, are the text;
// tokens and logprobs stay aligned with the text they made, which may be held back for a step or
// two (incomplete UTF-8, a possible stop string).
struct SequenceUpdate {
  RequestId request;
  int index = 0;  // of the sequence within its request
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // empty unless asked for
  // Of the request's first sequence, as its prompt is computed; the first entry is empty.
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;

  // Set in a sequence's last update.
  std::optional<sched::FinishReason> finish;
  std::optional<Error> error;  // with kError: kContradiction where the request left nothing
  StopReason stop_reason;
  Usage usage;
};

// A finished sequence, whole.
struct Choice {
  int index = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  sched::FinishReason finish = sched::FinishReason::kStop;
  std::optional<Error> error;
  StopReason stop_reason;
};

// A finished request, whole.
struct Completion {
  std::vector<Choice> choices;                                // by index
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;  // [prompt]; empty unless asked for
  Usage usage;
};

}  // namespace quire::engine
