#include "sched/trace.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "base/rng.h"

namespace quire::sched {
namespace {

constexpr int64_t kPrefixStreams = int64_t{1} << 40;   // kept apart from contents
constexpr int64_t kSiblingStreams = int64_t{1} << 50;  // outputs of sequences 1..n-1

class Generator {
 public:
  explicit Generator(const TraceOptions& options) : options_(options), rng_(options.seed, 0, 0) {}

  std::vector<TraceRequest> Make() {
    while (static_cast<int>(trace_.size()) < options_.requests) {
      clock_s_ += Exponential(1.0 / options_.requests_per_s);
      switch (options_.kind) {
        case TraceKind::kChat:
          AddConversation();
          break;
        case TraceKind::kAgents:
          AddRun();
          break;
        case TraceKind::kRetrieval:
          AddQuestion();
          break;
        case TraceKind::kBatch:
          AddInput();
          break;
        case TraceKind::kAdversarial:
          AddAttack();
          break;
      }
      ++next_content_;
    }
    std::ranges::stable_sort(trace_, {}, &TraceRequest::arrival_s);
    trace_.resize(options_.requests);
    return std::move(trace_);
  }

 private:
  int Below(int bound) { return static_cast<int>(rng_.NextBelow(std::max(1, bound))); }
  int Between(int low, int high) { return low + Below(high - low + 1); }
  double Exponential(double mean) { return -mean * std::log1p(-rng_.NextUnit()); }
  int Length(double mean) { return 1 + static_cast<int>(Exponential(mean)); }

  // Cuts the request to what the model's context holds; false where nothing is left.
  bool Add(TraceRequest request) {
    const int room = options_.max_total_tokens;
    request.prefix_tokens = std::min(request.prefix_tokens, room / 2);
    if (request.prefix_tokens + request.prompt_tokens + 1 > room) return false;
    request.output_tokens =
        std::min(request.output_tokens, room - request.prefix_tokens - request.prompt_tokens);
    trace_.push_back(std::move(request));
    return true;
  }

  TraceRequest Begin() {
    TraceRequest request;
    request.arrival_s = clock_s_;
    request.content = next_content_;
    return request;
  }

  // Turns that append to what was said, until the context is full.
  void AddTurns(TraceRequest request, int turns, double mean_input, double mean_pause_s) {
    for (int turn = 0; turn < turns; ++turn) {
      if (!Add(request)) return;
      const int answer = trace_.back().output_tokens;
      request.prompt_tokens += answer + Length(mean_input);
      request.output_tokens = Length(200);
      request.arrival_s += 2.0 + 0.05 * answer + Exponential(mean_pause_s);
    }
  }

  void AddConversation() {
    TraceRequest request = Begin();
    request.prefix = 0;
    request.prefix_tokens = 120;
    request.prompt_tokens = Length(150);
    request.output_tokens = Length(200);
    AddTurns(std::move(request), 1 + Below(6), 80, 20.0);
  }

  void AddRun() {
    TraceRequest request = Begin();
    request.prefix = Below(8);
    request.prefix_tokens = 1200 + 600 * static_cast<int>(*request.prefix % 4);
    request.prompt_tokens = Length(100);
    request.output_tokens = Length(80);
    AddTurns(std::move(request), Between(4, 12), 150, 1.0);
  }

  void AddQuestion() {
    TraceRequest request = Begin();
    // Popularity falls with the rank of the document.
    request.prefix = static_cast<int64_t>(std::exp(rng_.NextUnit() * std::log(300.0)));
    request.prefix_tokens =
        800 + static_cast<int>(base::Mix64(static_cast<uint64_t>(*request.prefix)) % 2000);
    request.prompt_tokens = Length(40);
    request.output_tokens = Length(120);
    Add(std::move(request));
  }

  void AddInput() {
    TraceRequest request = Begin();
    request.arrival_s = 0.0;
    request.prefix = 0;
    request.prefix_tokens = 500;
    request.prompt_tokens = Length(400);
    request.output_tokens = Length(150);
    Add(std::move(request));
  }

  void AddAttack() {
    TraceRequest request = Begin();
    const int kind = Below(10);
    if (kind < 6) {  // always the longest cached prefix: tempts the order of admission
      request.prefix = 1;
      request.prefix_tokens = options_.max_total_tokens / 2;
      request.prompt_tokens = Length(20);
      request.output_tokens = Length(100);
    } else if (kind < 8) {  // cold, long, evicts everything
      request.prompt_tokens =
          Between(options_.max_total_tokens / 2, options_.max_total_tokens - 200);
      request.output_tokens = Length(20);
    } else {  // short prompt, long answers, several of them
      request.prompt_tokens = Length(10);
      request.output_tokens = options_.max_total_tokens / 2;
      request.n = Between(1, 4);
      request.cache_salt = Below(2) == 0 ? "tenant" : "";
    }
    request.priority = Below(20) == 0 ? -1 : 0;
    Add(std::move(request));
  }

  TraceOptions options_;
  base::CounterRng rng_;
  std::vector<TraceRequest> trace_;
  double clock_s_ = 0.0;
  int64_t next_content_ = 0;
};

// Recorded prompts seen so far, as the hashes of all their beginnings.
class RecordedPrompts {
 public:
  // How much of the prompt an earlier one of the same salt began with; remembers the prompt.
  int Hit(const TraceRequest& request) {
    uint64_t hash = std::hash<std::string>()(request.cache_salt);
    int hit = 0;
    for (size_t i = 0; i < request.prompt_ids.size(); ++i) {
      hash = base::Mix64(hash ^ static_cast<uint64_t>(request.prompt_ids[i]));
      if (!seen_.insert(hash).second && hit == static_cast<int>(i)) ++hit;
    }
    return hit;
  }

 private:
  std::unordered_set<uint64_t> seen_;
};

}  // namespace

TokenId StreamToken(int64_t stream, int64_t position) {
  return static_cast<TokenId>(
      base::CounterRng(17, static_cast<uint64_t>(stream), static_cast<uint64_t>(position))
          .NextBelow(kTraceVocabulary));
}

std::vector<TokenId> PromptOf(const TraceRequest& request) {
  if (!request.prompt_ids.empty()) return request.prompt_ids;
  std::vector<TokenId> tokens;
  tokens.reserve(request.prefix_tokens + request.prompt_tokens);
  for (int i = 0; i < request.prefix_tokens; ++i) {
    tokens.push_back(StreamToken(kPrefixStreams + request.prefix.value_or(0), i));
  }
  for (int i = 0; i < request.prompt_tokens; ++i) {
    tokens.push_back(StreamToken(request.content, i));
  }
  return tokens;
}

TokenId OutputToken(const TraceRequest& request, int index, int position) {
  const int64_t stream =
      index == 0 ? request.content : kSiblingStreams + request.content * 64 + index;
  return StreamToken(stream, request.prompt_tokens + position);
}

Result<TraceKind> ParseTraceKind(const std::string& name) {
  if (name == "chat") return TraceKind::kChat;
  if (name == "agents") return TraceKind::kAgents;
  if (name == "retrieval") return TraceKind::kRetrieval;
  if (name == "batch") return TraceKind::kBatch;
  if (name == "adversarial") return TraceKind::kAdversarial;
  return MakeError(ErrorKind::kUsage,
                   "unknown kind of trace '{}'; there are chat, agents, retrieval, batch and "
                   "adversarial",
                   name);
}

std::vector<TraceRequest> MakeTrace(const TraceOptions& options) {
  return Generator(options).Make();
}

double BestHitRate(const std::vector<TraceRequest>& trace) {
  const auto key = [](const TraceRequest& request, int64_t stream) {
    return request.cache_salt + "/" + std::to_string(stream);
  };
  std::unordered_map<std::string, int> prefix_seen;
  std::unordered_map<std::string, int> content_seen;
  RecordedPrompts recorded;
  int64_t hits = 0;
  int64_t tokens = 0;
  for (const TraceRequest& request : trace) {
    const int prompt = request.prefix_tokens + request.prompt_tokens;
    tokens += prompt;
    if (!request.prompt_ids.empty()) {
      hits += std::min(recorded.Hit(request), prompt - 1);
      continue;
    }
    int& prefix = prefix_seen[key(request, request.prefix.value_or(-1))];
    int& content = content_seen[key(request, request.content)];
    int hit = std::min(request.prefix_tokens, prefix);
    if (hit == request.prefix_tokens) hit += std::min(request.prompt_tokens, content);
    hits += std::min(hit, prompt - 1);
    prefix = std::max(prefix, request.prefix_tokens);
    content = std::max(content, request.prompt_tokens + request.output_tokens);
  }
  return tokens == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(tokens);
}

}  // namespace quire::sched
