#include "eval/long_generation.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/engine.h"
#include "engine/sequence_evaluator.h"
#include "eval/logit_metrics.h"
#include "eval/run_requests.h"

namespace quire::eval {
namespace {

using Texts = std::vector<std::vector<TokenId>>;

struct Job {
  const engine::LoadedModel& model;
  std::span<const std::vector<TokenId>> prompts;
  int tokens = 0;
  int sequence_tokens = 0;  // of the longest prompt with its continuation
  base::ThreadTeam& team;
};

Result<Texts> Continue(const Job& job, const KvVariant& variant,
                       const std::function<void(int64_t)>& step_done) {
  engine::EngineOptions options;
  options.max_model_len = job.sequence_tokens;
  options.max_num_seqs = static_cast<int>(std::min<size_t>(job.prompts.size(), 64));
  options.kv_format = variant.format;
  options.threads = job.team.size();
  QUIRE_ASSIGN_OR_RETURN(const auto engine, engine::Engine::Create(job.model, options, job.team));
  std::vector<sched::Request> requests;
  for (const std::vector<TokenId>& prompt : job.prompts) {
    sched::Request& request = requests.emplace_back();
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = job.tokens;
    request.sampling.ignore_eos = true;
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<engine::Completion> completions,
                         RunRequests(*engine, std::move(requests), step_done));
  Texts texts;
  for (const engine::Completion& completion : completions) {
    texts.push_back(completion.choices[0].tokens);
  }
  return texts;
}

// The share of `texts`' tokens that are the most likely ones, given the prompt and the text so far.
Result<double> ForcedAgreement(const Job& job, const KvVariant& variant, const Texts& texts) {
  QUIRE_ASSIGN_OR_RETURN(
      const auto evaluator,
      engine::SequenceEvaluator::Create(
          job.model, {.kv_format = variant.format, .max_tokens = job.sequence_tokens}, job.team));
  int64_t agreeing = 0;
  int64_t all = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<TokenId> sequence = job.prompts[i];
    const int first = static_cast<int>(sequence.size());
    sequence.insert(sequence.end(), texts[i].begin(), texts[i].end());
    const auto fed = std::span(sequence).first(sequence.size() - 1);
    QUIRE_RETURN_IF_ERROR(evaluator->Evaluate(fed, [&](int position, auto logits) {
      if (position + 1 < first) return;
      agreeing += BestToken(logits) == sequence[position + 1] ? 1 : 0;
      ++all;
    }));
  }
  return static_cast<double>(agreeing) / static_cast<double>(std::max<int64_t>(all, 1));
}

void Compare(const Texts& texts, const Texts& reference, LongGenerationScore& score) {
  int64_t agreeing = 0;
  int64_t all = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto differ = std::ranges::mismatch(texts[i], reference[i]);
    score.equal_tokens.push_back(static_cast<int>(differ.in1 - texts[i].begin()));
    agreeing += std::inner_product(texts[i].begin(), texts[i].end(), reference[i].begin(),
                                   int64_t{0}, std::plus<>(), std::equal_to<>());
    all += static_cast<int64_t>(texts[i].size());
  }
  score.agreement = static_cast<double>(agreeing) / static_cast<double>(std::max<int64_t>(all, 1));
}

}  // namespace

int LongGenerationScore::identical() const {
  return static_cast<int>(std::ranges::count(equal_tokens, tokens));
}

double LongGenerationScore::mean_equal() const {
  const double sum = std::accumulate(equal_tokens.begin(), equal_tokens.end(), 0.0);
  return equal_tokens.empty() ? 0 : sum / static_cast<double>(equal_tokens.size());
}

Result<std::vector<std::vector<TokenId>>> CutPrompts(const text::Tokenizer& tokenizer,
                                                     std::string_view text, int count, int length) {
  const std::vector<TokenId> tokens = tokenizer.Encode(text);
  const std::optional<TokenId> bos = BosOf(tokenizer);
  const size_t cut = static_cast<size_t>(length - (bos ? 1 : 0));
  if (tokens.size() < cut || cut == 0) {
    return MakeError(ErrorKind::kUsage,
                     "the text has {} tokens, but a prompt takes {}; give more text or a shorter "
                     "--prompt-len",
                     tokens.size(), std::max<size_t>(cut, 1));
  }
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId>& prompt = prompts.emplace_back();
    if (bos) prompt.push_back(*bos);
    const size_t start = (tokens.size() - cut) * static_cast<size_t>(i) / count;
    const auto piece = std::span(tokens).subspan(start, cut);
    prompt.insert(prompt.end(), piece.begin(), piece.end());
  }
  return prompts;
}

Result<LongGenerationReport> MeasureLongGeneration(const engine::LoadedModel& model,
                                                   std::span<const std::vector<TokenId>> prompts,
                                                   const LongGenerationOptions& options,
                                                   base::ThreadTeam& team,
                                                   const std::function<void(int64_t)>& progress) {
  size_t longest = 0;
  for (const std::vector<TokenId>& prompt : prompts) longest = std::max(longest, prompt.size());
  const Job job{model, prompts, options.tokens, static_cast<int>(longest) + options.tokens, team};
  if (job.sequence_tokens > model.config().context_length) {
    return MakeError(ErrorKind::kUsage,
                     "a prompt of {} tokens and {} more are longer than the model's context of {}; "
                     "make --prompt-len or --tokens smaller",
                     longest, options.tokens, model.config().context_length);
  }
  std::vector<KvVariant> variants = {options.reference};
  variants.insert(variants.end(), options.variants.begin(), options.variants.end());
  LongGenerationReport report;
  int64_t done = 0;
  for (const KvVariant& variant : variants) {
    LongGenerationScore score;
    score.variant = variant;
    score.tokens = options.tokens;
    QUIRE_ASSIGN_OR_RETURN(score.cost, CostOf(variant.format, model));
    QUIRE_ASSIGN_OR_RETURN(Texts texts, Continue(job, variant, [&](int64_t generated) {
                             progress(done += generated);
                           }));
    if (report.continuations.empty()) report.continuations = texts;
    Compare(texts, report.continuations, score);
    QUIRE_ASSIGN_OR_RETURN(score.forced_agreement,
                           ForcedAgreement(job, variant, report.continuations));
    report.scores.push_back(std::move(score));
  }
  return report;
}

}  // namespace quire::eval
