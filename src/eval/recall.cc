#include "eval/recall.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "engine/completion.h"
#include "engine/engine.h"
#include "eval/run_requests.h"

namespace quire::eval {
namespace {

std::span<const RecallQuestion> Asked(const RecallCase& one, const RecallOptions& options) {
  const std::span<const RecallQuestion> all = one.questions;
  if (options.max_questions == 0) return all;
  return all.first(std::min(all.size(), static_cast<size_t>(options.max_questions)));
}

RecallTally Mark(const engine::Completion& completion, const RecallQuestion& question) {
  RecallTally tally{.asked = 1};
  const std::vector<engine::TokenLogprobs>& logprobs = completion.choices[0].logprobs;
  QUIRE_CHECK_EQ(logprobs.size(), 2u);
  QUIRE_CHECK(!logprobs[1].top.empty());
  tally.right = logprobs[1].top[0].first == question.answer ? 1 : 0;
  tally.nll_sum = -static_cast<double>(logprobs[1].logprob);
  return tally;
}

Result<engine::Completion> Ask(engine::Engine& engine, const RecallCase& one,
                               const RecallQuestion& question, const KvVariant& variant) {
  constexpr int kMostLikely = 1;
  std::vector<sched::Request> requests = {
      ScoringRequest(one.context, std::array{question.key, question.answer}, kMostLikely)};
  requests.front().eviction = variant.eviction.options;
  QUIRE_ASSIGN_OR_RETURN(std::vector<engine::Completion> completions,
                         RunRequests(engine, std::move(requests)));
  return std::move(completions.front());
}

Result<std::unique_ptr<engine::Engine>> MakeEngine(const engine::LoadedModel& model,
                                                   std::span<const RecallCase> cases,
                                                   const KvVariant& variant,
                                                   base::ThreadTeam& team) {
  size_t longest = 0;
  for (const RecallCase& one : cases) longest = std::max(longest, one.context.size());
  const int tokens = static_cast<int>(longest) + 2;  // with key and answer
  if (tokens > model.config().context_length) {
    return MakeError(ErrorKind::kUsage,
                     "a context of {} tokens with question and answer is longer than the model's "
                     "context of {}",
                     longest, model.config().context_length);
  }
  engine::EngineOptions options;
  QUIRE_ASSIGN_OR_RETURN(options.max_model_len,
                         LengthFor(variant, static_cast<int>(longest), tokens, model));
  options.max_num_seqs = 2;
  options.kv_format = variant.format;
  options.threads = team.size();
  return engine::Engine::Create(model, options, team);
}

}  // namespace

void RecallTally::Add(const RecallTally& other) {
  asked += other.asked;
  right += other.right;
  nll_sum += other.nll_sum;
}

int64_t QuestionCount(std::span<const RecallCase> cases, const RecallOptions& options) {
  int64_t count = 0;
  for (const RecallCase& one : cases) count += static_cast<int64_t>(Asked(one, options).size());
  return count;
}

Result<std::vector<RecallScore>> MeasureRecall(const engine::LoadedModel& model,
                                               std::span<const RecallCase> cases,
                                               const RecallOptions& options, base::ThreadTeam& team,
                                               const std::function<void(int64_t)>& progress) {
  std::vector<RecallScore> scores;
  int64_t done = 0;
  for (const KvVariant& variant : options.variants) {
    RecallScore score;
    score.variant = variant;
    QUIRE_ASSIGN_OR_RETURN(score.cost, CostOf(variant.format, model));
    QUIRE_ASSIGN_OR_RETURN(const auto engine, MakeEngine(model, cases, variant, team));
    std::map<int, RecallLength> lengths;
    for (const RecallCase& one : cases) {
      const int tokens = static_cast<int>(one.context.size());
      RecallLength& length = lengths[tokens];
      length.tokens = tokens;
      for (const RecallQuestion& question : Asked(one, options)) {
        QUIRE_ASSIGN_OR_RETURN(const engine::Completion completion,
                               Ask(*engine, one, question, variant));
        score.tokens_kept += KeptTokens(completion);
        const RecallTally tally = Mark(completion, question);
        length.by_depth[question.position * kRecallDepths / tokens].Add(tally);
        length.total.Add(tally);
        score.total.Add(tally);
        progress(++done);
      }
    }
    for (const auto& [tokens, length] : lengths) score.lengths.push_back(length);
    score.tokens_kept /= std::max(score.total.asked, 1);
    scores.push_back(std::move(score));
  }
  return scores;
}

}  // namespace quire::eval
