// SuffixAutomaton: all the substrings of a growing text of tokens, with how often each came and
// where it ended last.
//
// The automaton of Blumer et al. (1985), built online, one token at a time, in linear memory: at
// most two states per token. A state stands for substrings that end at the same places; `longest`
// is the length of the longest of them, `link` the state of its longest suffix that also ends
// elsewhere. Occurrences are counted along the links; of a text that repeats itself endlessly the
// chain of links is as long as the text, so counting stops after kCountedLinks: counts are then too
// small, never too large.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire::engine {

class SuffixAutomaton {
 public:
  static constexpr int kCountedLinks = 64;

  using State = int32_t;
  static constexpr State kRoot = 0;

  // A place in the automaton: the last `length` tokens of some text, found at `state`.
  struct Match {
    State state = kRoot;
    int length = 0;
  };

  SuffixAutomaton();

  void Append(TokenId token);
  // The next token is no continuation of the last: a new text begins. The texts share the states.
  void StartText() { last_ = kRoot; }

  int tokens() const { return tokens_; }
  // Bytes of the states and their edges.
  size_t bytes() const;

  // The longest suffix of (the matched tokens, token) that is a substring of the text.
  Match Advance(Match match, TokenId token) const;
  // The longest suffix of the text that came before; length 0: none did. For one text.
  Match Repeated() const;

  // What most often followed the match, then what most often followed that, and so on: at most
  // `count` tokens, and only as long as the product of the shares of those who chose so is at least
  // `share_least`. Among equals what came last. What nothing followed is shortened at its front.
  void Continue(Match match, int count, double share_least, std::vector<TokenId>& tokens) const;

 private:
  struct Edge {
    TokenId token = 0;
    State to = kRoot;
  };
  struct Node {
    int32_t longest = 0;
    State link = -1;  // of the root: none
    int32_t count = 0;
    int32_t last_end = 0;     // where an occurrence ended last
    std::vector<Edge> edges;  // by token
  };

  std::optional<State> Next(State from, TokenId token) const;
  void SetEdge(State from, TokenId token, State to);
  State StateReachedBy(State from, TokenId token, State next);
  void CountOccurrence();
  // The state that holds the match's substring: states may have been split since it was found.
  Match Settle(Match match) const;

  std::vector<Node> nodes_;
  State last_ = kRoot;
  int tokens_ = 0;
  size_t edges_ = 0;
};

}  // namespace quire::engine
