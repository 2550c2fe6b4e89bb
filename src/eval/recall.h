// Recall: facts hidden at all depths of a long context are asked for, with each way to store keys
// and values. Perplexity hardly notices what a codec or an eviction policy forgets far back; this
// does.
//
// Questions go through an Engine as requests do. The context is the prompt; the question follows as
// if it were generated: what gives tokens up has done so, not knowing it. Further questions find
// the context in the prefix cache, where the policy reads that. Right = the answer is the most
// likely next token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "engine/model_loader.h"
#include "eval/kv_variant.h"
#include "eval/recall_cases.h"

namespace quire::eval {

struct RecallTally {
  int asked = 0;
  int right = 0;
  double nll_sum = 0;  // of the answers, nats

  void Add(const RecallTally& other);
  double accuracy() const { return asked == 0 ? 0 : static_cast<double>(right) / asked; }
  double mean_nll() const { return asked == 0 ? 0 : nll_sum / asked; }
};

inline constexpr int kRecallDepths = 5;  // equal parts of a context

// Contexts of one length.
struct RecallLength {
  int tokens = 0;
  RecallTally total;
  RecallTally by_depth[kRecallDepths];  // [0]: keys in the first fifth of the context
};

struct RecallScore {
  KvVariant variant;
  KvCost cost;
  RecallTally total;
  std::vector<RecallLength> lengths;  // ascending
  double tokens_kept = 0;             // that had their KV when the answer came, on average
};

struct RecallOptions {
  std::vector<KvVariant> variants;
  int max_questions = 0;  // the first so many of each context; 0: all
};

// A score per variant, in order. kUsage if a context does not fit the model's, and what
// Engine::Create refuses. `progress` gets the questions answered so far.
Result<std::vector<RecallScore>> MeasureRecall(const engine::LoadedModel& model,
                                               std::span<const RecallCase> cases,
                                               const RecallOptions& options, base::ThreadTeam& team,
                                               const std::function<void(int64_t)>& progress);

// Questions that MeasureRecall asks of each variant.
int64_t QuestionCount(std::span<const RecallCase> cases, const RecallOptions& options);

}  // namespace quire::eval
