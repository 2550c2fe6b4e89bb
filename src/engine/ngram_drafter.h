// NgramDrafter: prompt lookup. What followed the text's last few tokens when they came before is
// what follows them now.
//
// Of all earlier places where the text's longest ending (of at most kLongest tokens) occurs, the
// newest is continued. Keeps no state: a proposal costs one pass over the tokens.
#pragma once

#include <vector>

#include "engine/drafter.h"

namespace quire::engine {

class NgramDrafter : public Drafter {
 public:
  static constexpr int kLongest = 4;

  std::string_view name() const override { return "ngram"; }
  void Propose(std::span<DraftJob* const> jobs) override;
  void Forget(const sched::Sequence&, const sched::Request&) override {}

  // `count` tokens that followed the last `n` of `tokens`, n <= kLongest as large as possible,
  // where these came before; where the tokens end the continuation goes on with itself. Empty: even
  // the last token never came before.
  static std::vector<TokenId> Continue(std::span<const TokenId> tokens, int count);
};

}  // namespace quire::engine
