// GrammarCache: the grammars of recent requests, compiled over one model's vocabulary.
//
// Owns the vocabulary's trie (made at the first use) and the grammars used last; a sequence's
// matcher keeps its own alive. Any thread may call it, and waits for no grammar but its own.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"
#include "sched/request.h"
#include "text/grammar_matcher.h"
#include "text/tokenizer.h"

namespace quire::engine {

class GrammarCache {
 public:
  static constexpr size_t kGrammarsMax = 16;

  // `tokenizer` must outlive the cache. `vocab_size`: of the model's logits.
  GrammarCache(const text::Tokenizer& tokenizer, int vocab_size)
      : tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  // kUsage, with what is wrong, if the constraint cannot be compiled; `param` names its kind.
  Result<std::shared_ptr<text::GrammarMasks>> Get(const sched::OutputConstraint& constraint);

 private:
  std::shared_ptr<text::GrammarMasks> Find(const sched::OutputConstraint& constraint);

  using Entry = std::pair<sched::OutputConstraint, std::shared_ptr<text::GrammarMasks>>;

  const text::Tokenizer& tokenizer_;
  int vocab_size_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // last used first; under mutex_
};

// Tells `matcher` the token that was drawn: kStop if nothing can follow it, whether or not the
// model has a token to say so; kError if it may not come.
std::optional<sched::FinishReason> EndByGrammar(text::GrammarMatcher& matcher, TokenId token);

// What a constraint does not go together with: kUsage.
Status ValidateConstraint(const sched::Request& request);

}  // namespace quire::engine
