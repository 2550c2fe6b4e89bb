#include "eval/eviction_perplexity.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "eval/nll_tally.h"
#include "eval/perplexity.h"
#include "eval/run_requests.h"

namespace quire::eval {
namespace {

Status Check(const EvictionPerplexityOptions& options, const engine::LoadedModel& model) {
  if (options.context > model.config().context_length) {
    return MakeError(ErrorKind::kUsage, "--context is {}, but the model was made for {} tokens",
                     options.context, model.config().context_length);
  }
  if (options.prompt < 1 || options.prompt >= options.context) {
    return MakeError(ErrorKind::kUsage,
                     "--prompt is {} tokens of windows of {}; at least 1 is needed, and one less "
                     "than --context at most",
                     options.prompt, options.context);
  }
  return Ok{};
}

// A window's prompt, and after it every token of it.
sched::Request RequestFor(const Window& window, std::span<const TokenId> text,
                          std::optional<TokenId> bos, int prompt) {
  const auto tokens = text.subspan(window.first, window.count);
  std::vector<TokenId> first;
  if (bos) first.push_back(*bos);
  const size_t from_text = static_cast<size_t>(prompt) - first.size();
  first.insert(first.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(from_text));
  return ScoringRequest(std::move(first), tokens.subspan(from_text));
}

struct Job {
  const engine::LoadedModel& model;
  std::span<const TokenId> text;
  const EvictionPerplexityOptions& options;
  base::ThreadTeam& team;
  std::vector<Window> windows;
  std::optional<TokenId> bos;
};

// Negative log likelihoods of the scored tokens in the order of the text, into `nll`.
Result<EvictionScore> Score(const Job& job, engine::Engine& engine, const KvVariant& variant,
                            const std::function<void(int64_t)>& step_done,
                            std::vector<double>& nll) {
  std::vector<sched::Request> requests;
  int64_t computed = 0;
  for (const Window& window : job.windows) {
    requests.push_back(RequestFor(window, job.text, job.bos, job.options.prompt));
    requests.back().eviction = variant.eviction.options;
    computed += static_cast<int64_t>(requests.back().prompt.size()) +
                static_cast<int64_t>(requests.back().forced_output.size()) - 1;
  }
  EvictionScore score;
  score.variant = variant;
  const double start = base::MonotonicSeconds();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<engine::Completion> completions,
                         RunRequests(engine, std::move(requests), step_done));
  score.seconds = base::MonotonicSeconds() - start;
  score.tokens_per_s = static_cast<double>(computed) / score.seconds;
  nll.clear();
  for (size_t w = 0; w < completions.size(); ++w) {
    const Window& window = job.windows[w];
    const std::vector<engine::TokenLogprobs>& said = completions[w].choices[0].logprobs;
    const int64_t last = window.first + window.count;
    for (int64_t i = window.first_scored; i < last; ++i) {
      nll.push_back(-double{said[said.size() - static_cast<size_t>(last - i)].logprob});
    }
    score.tokens_kept += KeptTokens(completions[w]) / static_cast<double>(completions.size());
  }
  return score;
}

void Finish(const NllTally& tally, EvictionScore& score) {
  score.mean_nll = tally.mean();
  score.perplexity = tally.perplexity();
  score.rise = tally.rise();
  score.rise_error = tally.rise_error();
}

Result<std::unique_ptr<engine::Engine>> MakeEngine(const Job& job,
                                                   std::span<const KvVariant> variants) {
  engine::EngineOptions options;
  int length = 0;
  for (const KvVariant& variant : variants) {
    QUIRE_ASSIGN_OR_RETURN(const int needed,
                           LengthFor(variant, job.options.prompt, job.options.context, job.model));
    length = std::max(length, needed);
  }
  options.max_model_len = length;
  options.max_num_seqs = std::min(job.options.batch, static_cast<int>(job.windows.size()));
  options.kv_format = variants.front().format;
  options.enable_prefix_caching = false;  // what one policy computed, the next must compute again
  options.max_queued_requests = static_cast<int>(job.windows.size());
  options.threads = job.team.size();
  return engine::Engine::Create(job.model, options, job.team);
}

// The full cache of a codec, then each policy.
std::vector<KvVariant> VariantsOf(const KvVariant& codec,
                                  std::span<const EvictionVariant> evictions) {
  std::vector<KvVariant> variants = {codec};
  variants.front().eviction = {};
  for (const EvictionVariant& eviction : evictions) {
    variants.push_back(codec);
    variants.back().eviction = eviction;
  }
  return variants;
}

}  // namespace

Result<EvictionPerplexityReport> MeasureEvictionPerplexity(
    const engine::LoadedModel& model, std::span<const TokenId> tokens,
    const EvictionPerplexityOptions& options, base::ThreadTeam& team,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  QUIRE_RETURN_IF_ERROR(Check(options, model));
  Job job{model, tokens, options, team, {}, BosOf(model.tokenizer())};
  const int bos = job.bos ? 1 : 0;
  PerplexityOptions plan;
  plan.context = options.context;
  plan.stride = options.stride;
  plan.min_context = options.prompt - bos;
  QUIRE_ASSIGN_OR_RETURN(job.windows, PlanWindows(std::ssize(tokens), bos, plan));
  EvictionPerplexityReport report;
  report.text_tokens = std::ssize(tokens);
  report.windows = std::ssize(job.windows);
  report.bos = job.bos.has_value();
  int64_t forced = 0;
  for (const Window& window : job.windows) forced += window.count + bos - options.prompt;
  const auto variants =
      static_cast<int64_t>(options.codecs.size() * (options.evictions.size() + 1));
  int64_t done = 0;
  const auto step_done = [&](int64_t count) { progress(done += count, variants * forced); };

  std::vector<double> full;
  std::vector<double> nll;
  for (const KvVariant& codec : options.codecs) {
    QUIRE_ASSIGN_OR_RETURN(const KvCost cost, CostOf(codec.format, model));
    const std::vector<KvVariant> of_codec = VariantsOf(codec, options.evictions);
    QUIRE_ASSIGN_OR_RETURN(const auto engine, MakeEngine(job, of_codec));
    for (const KvVariant& variant : of_codec) {
      QUIRE_ASSIGN_OR_RETURN(EvictionScore score, Score(job, *engine, variant, step_done, nll));
      if (!variant.eviction.options.evicts()) full = nll;
      NllTally tally;
      for (size_t i = 0; i < nll.size(); ++i) tally.Add(nll[i], full[i]);
      Finish(tally, score);
      score.cost = cost;
      report.scored_tokens = tally.count();
      report.scores.push_back(std::move(score));
    }
  }
  return report;
}

}  // namespace quire::eval
