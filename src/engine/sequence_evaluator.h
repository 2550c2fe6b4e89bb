// SequenceEvaluator: the logits of every position of given tokens, one sequence at a time. For
// comparing engines and for perplexity; serving goes through Engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "engine/model_loader.h"
#include "kv/kv_cache.h"
#include "kvstore/kv_store.h"
#include "model/transformer.h"

namespace quire::engine {

struct EvaluatorOptions {
  kvstore::KvFormat kv_format;
  int max_tokens = 0;  // of the longest sequence
  int chunk = 256;     // tokens per forward pass
};

class SequenceEvaluator {
 public:
  // `model` and `team` must outlive it. kUsage or kExhausted when the options cannot work.
  static Result<std::unique_ptr<SequenceEvaluator>> Create(const LoadedModel& model,
                                                           const EvaluatorOptions& options,
                                                           base::ThreadTeam& team);

  // For Create, which checks the options.
  SequenceEvaluator(const LoadedModel& model, const EvaluatorOptions& options,
                    kvstore::KvStore store, base::ThreadTeam& team);

  const kvstore::KvLayout& layout() const { return store_.layout(); }

  // Calls sink(position, logits [vocab_size]) for every position, ascending. kUsage if there are
  // too many tokens or one is outside the vocabulary.
  Status Evaluate(std::span<const TokenId> tokens,
                  base::FunctionRef<void(int position, std::span<const float> logits)> sink);

 private:
  const LoadedModel& model_;
  EvaluatorOptions options_;
  kvstore::KvStore store_;
  model::Transformer transformer_;
  kv::KvCache cache_;
};

}  // namespace quire::engine
