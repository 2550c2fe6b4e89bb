// GrammarMatcher: one sequence's way through a grammar: which tokens may come next, and what came.
//
// Copies are cheap and are snapshots: for forks, and to go back after a rejected draft. Matchers of
// one GrammarMasks share what they compute and may be used by different threads at the same time; a
// matcher by one.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/grammar_states.h"
#include "text/grammar_vocabulary.h"

namespace quire::text {

// A grammar over a vocabulary, with the masks computed so far. Its memory is bounded: beyond the
// bound it forgets and computes again what is needed.
class GrammarMasks {
 public:
  static constexpr size_t kBytesMax = size_t{32} << 20;  // one mask may exceed it for a while

  GrammarMasks(GrammarPtr grammar, std::shared_ptr<const GrammarVocabulary> vocabulary,
               size_t bytes_max = kBytesMax);

  const Grammar& grammar() const { return *grammar_; }

  // Computes the mask of the text's start, which every sequence needs, once and for all.
  void PrepareStart();

 private:
  friend class GrammarMatcher;
  // The table to go on with; under mutex_.
  const std::shared_ptr<GrammarStates>& Current();

  GrammarPtr grammar_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  size_t bytes_max_;
  std::mutex mutex_;
  std::shared_ptr<GrammarStates> states_;        // under mutex_, as are all tables made from it
  std::shared_ptr<const TokenMask> start_mask_;  // under mutex_; null: not computed yet
};

class GrammarMatcher {
 public:
  // `end_tokens`: those that end the sequence; they may come exactly where the grammar may end,
  // whatever they stand for.
  GrammarMatcher(std::shared_ptr<GrammarMasks> masks, std::vector<TokenId> end_tokens);

  // Valid until the next call of a function of this matcher that is not const.
  const TokenMask& Allowed();
  // Computes what Allowed() gives unless it is past `deadline` (base::MonotonicSeconds()) already;
  // true if Allowed() costs nothing now. A mask may take milliseconds, and longer for vocabularies
  // of 100,000 tokens and more.
  bool PrepareAllowed(double deadline);

  // The next token. False if it may not come: nothing changes then.
  bool Accept(TokenId token);
  // The next bytes, without regard to tokens.
  bool AcceptBytes(std::string_view bytes);

  // What came so far may be all.
  bool can_end() const { return !ended_ && at_->may_end; }
  // Nothing but an end token can come; or one has come.
  bool finished() const { return ended_ || at_->complete(); }

 private:
  // Under the mutex of masks_.
  void UseCurrentTable();
  void LeaveTable();
  void MakeMask();

  std::shared_ptr<GrammarMasks> masks_;
  std::shared_ptr<const std::vector<TokenId>> end_tokens_;
  std::shared_ptr<GrammarStates> states_;
  GrammarStates::Configuration* at_ = nullptr;  // lives in states_
  bool ended_ = false;
  bool at_start_ = true;
  // What may come here; null: not asked for yet. May be a part of a table, which it keeps alive.
  std::shared_ptr<const TokenMask> allowed_;
};

}  // namespace quire::text
