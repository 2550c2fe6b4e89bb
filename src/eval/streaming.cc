#include "eval/streaming.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "eval/nll_tally.h"
#include "eval/run_requests.h"

namespace quire::eval {
namespace {

struct Job {
  const engine::LoadedModel& model;
  std::vector<TokenId> text;  // BOS included
  const StreamingOptions& options;
  base::ThreadTeam& team;
  size_t prefix = 0;            // 1: the text begins with BOS
  std::vector<size_t> sampled;  // places in `text`, ascending

  size_t first_scored() const { return static_cast<size_t>(options.budget); }
  size_t scored() const { return text.size() - first_scored(); }
};

// Negative log likelihoods and how long they took.
struct Scored {
  std::vector<double> nll;
  double seconds = 0;
  double tokens_kept = 0;  // of the last sequence
};

Result<Scored> Run(engine::Engine& engine, std::vector<sched::Request> requests,
                   const std::function<void(int64_t)>& step_done) {
  Scored scored;
  const double start = base::MonotonicSeconds();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<engine::Completion> completions,
                         RunRequests(engine, std::move(requests), step_done));
  scored.seconds = base::MonotonicSeconds() - start;
  for (const engine::Completion& completion : completions) {
    for (const engine::TokenLogprobs& said : completion.choices[0].logprobs) {
      scored.nll.push_back(-double{said.logprob});
    }
    scored.tokens_kept = KeptTokens(completion);
  }
  return scored;
}

Result<Scored> Stream(const Job& job, engine::Engine& engine, const KvVariant& variant,
                      const std::function<void(int64_t)>& step_done) {
  const std::span<const TokenId> text = job.text;
  const auto prompt = text.first(job.first_scored());
  std::vector<sched::Request> requests = {
      ScoringRequest({prompt.begin(), prompt.end()}, text.subspan(prompt.size()))};
  requests.front().eviction = variant.eviction.options;
  return Run(engine, std::move(requests), step_done);
}

Result<Scored> Recompute(const Job& job, engine::Engine& engine,
                         const std::function<void(int64_t)>& step_done) {
  const std::span<const TokenId> text = job.text;
  std::vector<sched::Request> requests;
  for (const size_t place : job.sampled) {
    const auto before = text.first(place).last(job.first_scored() - job.prefix);
    std::vector<TokenId> prompt(text.begin(), text.begin() + static_cast<ptrdiff_t>(job.prefix));
    prompt.insert(prompt.end(), before.begin(), before.end());
    requests.push_back(ScoringRequest(std::move(prompt), text.subspan(place, 1)));
  }
  return Run(engine, std::move(requests), step_done);
}

// One sequence at a time: what a token costs is what a single reader waits for.
Result<std::unique_ptr<engine::Engine>> MakeEngine(const Job& job,
                                                   std::span<const KvVariant> variants) {
  QUIRE_ASSIGN_OR_RETURN(
      engine::EngineOptions options,
      EngineOptionsFor(variants, {.prompt = job.options.budget, .tokens = job.options.budget + 1},
                       job.model));
  options.enable_prefix_caching = false;
  options.max_queued_requests = std::max(job.options.recomputed, 1);
  return engine::Engine::Create(job.model, options, job.team);
}

std::vector<KvVariant> VariantsOf(const KvVariant& codec, const StreamingOptions& options) {
  std::vector<KvVariant> variants;
  for (const int sinks : options.sinks) {
    variants.push_back(codec);
    EvictionVariant& eviction = variants.back().eviction;
    eviction = {.budget = fmt::format("{}", options.budget), .options = {}};
    eviction.options.policy = kv::EvictionPolicy::kStreaming;
    eviction.options.budget_tokens = options.budget;
    eviction.options.sinks = sinks;
  }
  if (options.recomputed > 0) {
    variants.push_back(codec);
    variants.back().eviction = {};
  }
  return variants;
}

// Of all streams of one codec, which `afresh` (empty where none was asked for) is compared with.
void Compare(const Job& job, const Scored& scored, const Scored& afresh, StreamingScore& score) {
  NllTally sample;
  for (size_t i = 0; i < afresh.nll.size(); ++i) {
    sample.Add(score.afresh() ? afresh.nll[i] : scored.nll[job.sampled[i] - job.first_scored()],
               afresh.nll[i]);
  }
  if (sample.count() > 0) score.sampled_perplexity = sample.perplexity();
  score.sampled_rise = sample.rise();
  score.sampled_rise_error = sample.rise_error();
  score.tokens_kept = scored.tokens_kept;
  score.tokens_per_s = static_cast<double>(scored.nll.size()) / scored.seconds;
  if (score.afresh()) return;
  NllTally all;
  for (const double nll : scored.nll) all.Add(nll, nll);
  score.perplexity = all.perplexity();
}

Status MeasureCodec(const Job& job, const KvVariant& codec,
                    const std::function<void(int64_t)>& step_done, StreamingReport& report) {
  QUIRE_ASSIGN_OR_RETURN(const KvCost cost, CostOf(codec.format, job.model));
  const std::vector<KvVariant> variants = VariantsOf(codec, job.options);
  QUIRE_ASSIGN_OR_RETURN(const auto engine, MakeEngine(job, variants));
  std::vector<Scored> results;
  for (const KvVariant& variant : variants) {
    QUIRE_ASSIGN_OR_RETURN(Scored scored, variant.eviction.options.evicts()
                                              ? Stream(job, *engine, variant, step_done)
                                              : Recompute(job, *engine, step_done));
    results.push_back(std::move(scored));
  }
  const Scored none;
  const Scored& afresh = job.options.recomputed > 0 ? results.back() : none;
  for (size_t i = 0; i < variants.size(); ++i) {
    StreamingScore& score = report.scores.emplace_back();
    score.variant = variants[i];
    score.cost = cost;
    Compare(job, results[i], afresh, score);
  }
  return Ok{};
}

// `count` places, each in the middle of an equal part of the scored tokens.
std::vector<size_t> Spread(const Job& job, size_t count) {
  std::vector<size_t> places;
  for (size_t i = 0; i < count; ++i) {
    places.push_back(job.first_scored() + (2 * i + 1) * job.scored() / (2 * count));
  }
  return places;
}

Status Check(const Job& job) {
  const StreamingOptions& options = job.options;
  if (options.budget >= job.model.config().context_length) {
    return MakeError(ErrorKind::kUsage,
                     "a budget of {} tokens and one more are beyond the model's context of {}",
                     options.budget, job.model.config().context_length);
  }
  if (job.text.size() <= job.first_scored()) {
    return MakeError(ErrorKind::kUsage,
                     "the text has {} tokens, BOS included, which a budget of {} holds; give more "
                     "text or a smaller budget",
                     job.text.size(), options.budget);
  }
  if (static_cast<size_t>(options.recomputed) > job.scored()) {
    return MakeError(ErrorKind::kUsage,
                     "{} tokens are to be computed afresh and {} are scored; ask for fewer",
                     options.recomputed, job.scored());
  }
  return Ok{};
}

}  // namespace

Result<StreamingReport> MeasureStreaming(
    const engine::LoadedModel& model, std::span<const TokenId> tokens,
    const StreamingOptions& options, base::ThreadTeam& team,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  Job job{model, {}, options, team, 0, {}};
  if (const auto bos = BosOf(model.tokenizer())) job.text.push_back(*bos);
  job.prefix = job.text.size();
  job.text.insert(job.text.end(), tokens.begin(), tokens.end());
  if (options.tokens > 0) {
    job.text.resize(std::min(job.text.size(), job.first_scored() + options.tokens));
  }
  QUIRE_RETURN_IF_ERROR(Check(job));
  job.sampled = Spread(job, static_cast<size_t>(options.recomputed));

  StreamingReport report;
  report.text_tokens = std::ssize(tokens);
  report.scored_tokens = static_cast<int64_t>(job.scored());
  report.recomputed_tokens = options.recomputed;
  report.bos = job.prefix > 0;
  const int64_t total =
      std::ssize(options.codecs) *
      (report.scored_tokens * std::ssize(options.sinks) + report.recomputed_tokens);
  int64_t done = 0;
  for (const KvVariant& codec : options.codecs) {
    QUIRE_RETURN_IF_ERROR(MeasureCodec(
        job, codec, [&](int64_t count) { progress(done += count, total); }, report));
  }
  return report;
}

}  // namespace quire::eval
