// Traces: arrivals of requests, as the simulator replays them. Tokens are described, not listed: a
// request's text is a part of numbered streams of tokens, and two requests share what they take
// from the same streams.
//
//     prompt = stream `prefix`[0, prefix_tokens) + stream `content`[0, prompt_tokens)
//     output = stream `content`[prompt_tokens, prompt_tokens + output_tokens)
//
// So the next turn of a conversation is the same content, longer: it holds the answer before it.
// A recorded request may bring its prompt's token ids instead; then only outputs are made up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace quire::sched {

struct TraceRequest {
  double arrival_s = 0.0;
  std::optional<int64_t> prefix;  // a system prompt or document that other requests start with, too
  int prefix_tokens = 0;
  int64_t content = 0;
  int prompt_tokens = 0;            // after the prefix
  std::vector<TokenId> prompt_ids;  // [prompt_tokens] in place of the content, without a prefix
  int output_tokens = 0;
  int priority = 0;
  int n = 1;
  std::string cache_salt;

  int total_tokens() const { return prefix_tokens + prompt_tokens + output_tokens; }
};

// Token `position` of a stream, of a vocabulary of kTraceVocabulary.
inline constexpr int kTraceVocabulary = 32000;
TokenId StreamToken(int64_t stream, int64_t position);
std::vector<TokenId> PromptOf(const TraceRequest& request);
// Output token `position` of the request's sequence `index`; index 0 continues the content.
TokenId OutputToken(const TraceRequest& request, int index, int position);

enum class TraceKind {
  kChat,         // conversations of several turns, each holding all before
  kAgents,       // a few long system prompts, runs of many turns that append results of tools
  kRetrieval,    // a question about one of many documents, some of them popular
  kBatch,        // everything at once, one instruction, different inputs
  kAdversarial,  // a hot prefix beyond capacity, against long cold prompts, priorities and n > 1
};
// kUsage names the kinds there are.
Result<TraceKind> ParseTraceKind(const std::string& name);

struct TraceOptions {
  TraceKind kind = TraceKind::kChat;
  int requests = 1000;
  double requests_per_s = 4.0;  // mean rate of conversations, runs or requests beginning
  int max_total_tokens = 4096;  // nothing is longer
  uint64_t seed = 1;
};

// Sorted by arrival; a function of the options.
std::vector<TraceRequest> MakeTrace(const TraceOptions& options);

// The share of prompt tokens that a cache without limits finds, every request finishing before the
// next arrives, to the token: no cache can find more.
double BestHitRate(const std::vector<TraceRequest>& trace);

}  // namespace quire::sched
