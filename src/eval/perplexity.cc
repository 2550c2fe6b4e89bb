#include "eval/perplexity.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "engine/sequence_evaluator.h"
#include "eval/logit_metrics.h"
#include "eval/nll_tally.h"
#include "eval/run_requests.h"

namespace quire::eval {
namespace {

// What a variant's scored tokens add up to.
struct Sums {
  NllTally nll;  // beside f32's
  int64_t agreeing = 0;
  std::vector<double> kl;  // [scored tokens]
  double seconds = 0;
  int64_t computed = 0;  // tokens
};

struct Contestant {
  VariantScore score;
  std::unique_ptr<engine::SequenceEvaluator> evaluator;
  Sums sums;
};

// The scored rows of one window with f32.
class ReferenceRows {
 public:
  ReferenceRows(int rows, int vocab_size)
      : vocab_size_(static_cast<size_t>(vocab_size)), logits_(rows * vocab_size_) {}

  void Clear() { facts_.clear(); }
  void Add(std::span<const float> logits, TokenId token) {
    std::ranges::copy(logits, logits_.begin() + static_cast<std::ptrdiff_t>(size() * vocab_size_));
    const double log_sum = LogSumExp(logits);
    facts_.push_back({log_sum, NegativeLogLikelihood(logits, log_sum, token), BestToken(logits)});
  }
  size_t size() const { return facts_.size(); }
  LogitRow row(size_t i) const {
    return {std::span(logits_).subspan(i * vocab_size_, vocab_size_), facts_[i].log_sum};
  }
  double nll(size_t i) const { return facts_[i].nll; }
  TokenId best(size_t i) const { return facts_[i].best; }

 private:
  struct Facts {
    double log_sum = 0;
    double nll = 0;
    TokenId best = 0;
  };
  size_t vocab_size_;
  std::vector<float> logits_;  // [rows, vocab_size]
  std::vector<Facts> facts_;
};

void AddReference(double nll, Sums& sums) {
  sums.nll.Add(nll, nll);
  ++sums.agreeing;
  sums.kl.push_back(0);
}

void Compare(const ReferenceRows& reference, size_t row, const LogitRow& logits, double nll,
             Sums& sums) {
  sums.nll.Add(nll, reference.nll(row));
  sums.agreeing += BestToken(logits.logits) == reference.best(row) ? 1 : 0;
  sums.kl.push_back(KlDivergence(reference.row(row), logits));
}

// Computes `fed`, the window's tokens but the last, and calls score(logits, token) for each scored
// token in order. Its time is not the window's.
Status ComputeWindow(const Window& window, std::span<const TokenId> text,
                     std::span<const TokenId> fed, Contestant& contestant,
                     base::FunctionRef<void(std::span<const float>, TokenId)> score) {
  // A row of logits at position p predicts the text's token shift + p.
  const int64_t shift = window.first + window.count - static_cast<int64_t>(fed.size());
  double scoring_s = 0;
  const double start = base::MonotonicSeconds();
  QUIRE_RETURN_IF_ERROR(
      contestant.evaluator->Evaluate(fed, [&](int position, std::span<const float> logits) {
        const int64_t predicted = shift + position;
        if (predicted < window.first_scored) return;
        const double scoring = base::MonotonicSeconds();
        score(logits, text[predicted]);
        scoring_s += base::MonotonicSeconds() - scoring;
      }));
  contestant.sums.seconds += base::MonotonicSeconds() - start - scoring_s;
  contestant.sums.computed += static_cast<int64_t>(fed.size());
  return Ok{};
}

void Finish(Contestant& contestant) {
  const Sums& sums = contestant.sums;
  VariantScore& score = contestant.score;
  const double count = std::max<double>(static_cast<double>(sums.kl.size()), 1);
  score.mean_nll = sums.nll.mean();
  score.perplexity = sums.nll.perplexity();
  score.rise = sums.nll.rise();
  score.rise_error = sums.nll.rise_error();
  for (const double kl : sums.kl) score.kl_mean += kl / count;
  std::vector<double> sorted = sums.kl;
  score.kl_p99 = Percentile(sorted, 0.99);
  score.top1_agreement = static_cast<double>(sums.agreeing) / count;
  score.seconds = sums.seconds;
  score.tokens_per_s = sums.seconds > 0 ? static_cast<double>(sums.computed) / sums.seconds : 0;
}

Result<std::vector<Contestant>> Enlist(const engine::LoadedModel& model,
                                       const PerplexityOptions& options, base::ThreadTeam& team) {
  std::vector<KvVariant> variants = {options.reference};
  variants.insert(variants.end(), options.variants.begin(), options.variants.end());
  std::vector<Contestant> contestants;
  for (KvVariant& variant : variants) {
    Contestant contestant;
    QUIRE_ASSIGN_OR_RETURN(contestant.score.cost, CostOf(variant.format, model));
    QUIRE_ASSIGN_OR_RETURN(
        contestant.evaluator,
        engine::SequenceEvaluator::Create(model,
                                          {.kv_format = variant.format,
                                           .max_tokens = options.context - 1,
                                           .chunk = std::min(options.chunk, options.context)},
                                          team));
    contestant.score.variant = std::move(variant);
    contestants.push_back(std::move(contestant));
  }
  return contestants;
}

// All contestants over one window.
Status ScoreWindow(const Window& window, std::span<const TokenId> text,
                   std::span<const TokenId> fed, std::vector<Contestant>& contestants,
                   ReferenceRows& reference) {
  reference.Clear();
  QUIRE_RETURN_IF_ERROR(ComputeWindow(
      window, text, fed, contestants[0], [&](std::span<const float> logits, TokenId token) {
        reference.Add(logits, token);
        AddReference(reference.nll(reference.size() - 1), contestants[0].sums);
      }));
  for (size_t i = 1; i < contestants.size(); ++i) {
    size_t row = 0;
    QUIRE_RETURN_IF_ERROR(ComputeWindow(
        window, text, fed, contestants[i], [&](std::span<const float> logits, TokenId token) {
          const double log_sum = LogSumExp(logits);
          const double nll = NegativeLogLikelihood(logits, log_sum, token);
          Compare(reference, row++, {logits, log_sum}, nll, contestants[i].sums);
        }));
  }
  return Ok{};
}

}  // namespace

Result<std::vector<Window>> PlanWindows(int64_t text_tokens, int bos_tokens,
                                        const PerplexityOptions& options) {
  const int room = options.context - bos_tokens;  // tokens of text in a window
  const int before = std::max(options.min_context, 1 - bos_tokens);
  if (options.stride > options.context) {
    return MakeError(ErrorKind::kUsage,
                     "--stride {} would leave out text between windows of {} tokens; make it at "
                     "most --context",
                     options.stride, options.context);
  }
  if (before >= room) {
    return MakeError(ErrorKind::kUsage,
                     "no token of a window of {} has {} before it; make --min-context smaller",
                     options.context, options.min_context);
  }
  if (text_tokens < room) {
    return MakeError(ErrorKind::kUsage,
                     "the text has {} tokens, but a window of --context {} takes {}; give more "
                     "text or a shorter context",
                     text_tokens, options.context, room);
  }
  std::vector<Window> windows;
  int64_t scored_end = 0;
  for (int64_t first = 0; scored_end < text_tokens && first < text_tokens;
       first += options.stride) {
    const int count = static_cast<int>(std::min<int64_t>(room, text_tokens - first));
    const int64_t first_scored = std::max(scored_end, first + before);
    if (first_scored < first + count) windows.push_back({first, count, first_scored});
    scored_end = first + count;
  }
  return windows;
}

Result<PerplexityReport> MeasurePerplexity(
    const engine::LoadedModel& model, std::span<const TokenId> tokens,
    const PerplexityOptions& options, base::ThreadTeam& team,
    const std::function<void(const PerplexityProgress&)>& progress) {
  if (options.context - 1 > model.config().context_length) {
    return MakeError(ErrorKind::kUsage, "--context is {}, but the model was made for {} tokens",
                     options.context, model.config().context_length);
  }
  const std::optional<TokenId> bos = BosOf(model.tokenizer());
  PerplexityReport report;
  report.text_tokens = static_cast<int64_t>(tokens.size());
  report.bos = bos.has_value();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Window> windows,
                         PlanWindows(report.text_tokens, report.bos ? 1 : 0, options));
  QUIRE_ASSIGN_OR_RETURN(std::vector<Contestant> contestants, Enlist(model, options, team));

  ReferenceRows reference(options.context, model.config().vocab_size);
  PerplexityProgress state{.total = static_cast<int64_t>(windows.size())};
  std::vector<TokenId> fed;
  for (const Window& window : windows) {
    fed.clear();
    if (bos) fed.push_back(*bos);
    const auto text = tokens.subspan(window.first, window.count - 1);
    fed.insert(fed.end(), text.begin(), text.end());
    QUIRE_RETURN_IF_ERROR(ScoreWindow(window, tokens, fed, contestants, reference));
    ++state.done;
    state.tokens += static_cast<int64_t>(fed.size() * contestants.size());
    progress(state);
  }
  report.windows = state.total;
  report.scored_tokens = static_cast<int64_t>(contestants[0].sums.kl.size());
  for (Contestant& contestant : contestants) {
    Finish(contestant);
    report.scores.push_back(std::move(contestant.score));
  }
  return report;
}

}  // namespace quire::eval
