#include "engine/suffix_automaton.h"

#include <algorithm>
#include <utility>

namespace quire::engine {

SuffixAutomaton::SuffixAutomaton() {
  nodes_.emplace_back();
}

size_t SuffixAutomaton::bytes() const {
  return nodes_.size() * sizeof(Node) + edges_ * sizeof(Edge);
}

std::optional<SuffixAutomaton::State> SuffixAutomaton::Next(State from, TokenId token) const {
  const std::vector<Edge>& edges = nodes_[from].edges;
  const auto edge = std::ranges::lower_bound(edges, token, {}, &Edge::token);
  if (edge == edges.end() || edge->token != token) return std::nullopt;
  return edge->to;
}

void SuffixAutomaton::SetEdge(State from, TokenId token, State to) {
  std::vector<Edge>& edges = nodes_[from].edges;
  const auto edge = std::ranges::lower_bound(edges, token, {}, &Edge::token);
  if (edge != edges.end() && edge->token == token) {
    edge->to = to;
  } else {
    edges.insert(edge, {token, to});
    ++edges_;
  }
}

void SuffixAutomaton::Append(TokenId token) {
  ++tokens_;
  if (const std::optional<State> known = Next(last_, token)) {
    // A text before this one went the same way.
    last_ = StateReachedBy(last_, token, *known);
  } else {
    const auto added = static_cast<State>(nodes_.size());
    nodes_.emplace_back();
    nodes_[added].longest = nodes_[last_].longest + 1;
    State at = last_;
    std::optional<State> next;
    for (; at >= 0 && !(next = Next(at, token)); at = nodes_[at].link) SetEdge(at, token, added);
    const State link = at < 0 ? kRoot : StateReachedBy(at, token, *next);
    nodes_[added].link = link;
    last_ = added;
  }
  CountOccurrence();
}

// The state of (the longest substring of `from`, token), which `next` holds together with longer
// ones perhaps: then it is split off.
SuffixAutomaton::State SuffixAutomaton::StateReachedBy(State from, TokenId token, State next) {
  const int longest = nodes_[from].longest + 1;
  if (nodes_[next].longest == longest) return next;
  const auto clone = static_cast<State>(nodes_.size());
  nodes_.push_back(Node(nodes_[next]));
  nodes_[clone].longest = longest;
  nodes_[next].link = clone;
  edges_ += nodes_[clone].edges.size();
  for (; from >= 0 && Next(from, token) == next; from = nodes_[from].link) {
    SetEdge(from, token, clone);
  }
  return clone;
}

void SuffixAutomaton::CountOccurrence() {
  State at = last_;
  for (int links = 0; at > kRoot && links < kCountedLinks; ++links, at = nodes_[at].link) {
    ++nodes_[at].count;
    nodes_[at].last_end = tokens_;
  }
}

SuffixAutomaton::Match SuffixAutomaton::Settle(Match match) const {
  while (match.state != kRoot && match.length <= nodes_[nodes_[match.state].link].longest) {
    match.state = nodes_[match.state].link;
  }
  return match;
}

SuffixAutomaton::Match SuffixAutomaton::Advance(Match match, TokenId token) const {
  match = Settle(match);
  for (;;) {
    if (const auto next = Next(match.state, token)) return Settle({*next, match.length + 1});
    if (match.state == kRoot) return {};
    match.state = nodes_[match.state].link;
    match.length = nodes_[match.state].longest;
  }
}

SuffixAutomaton::Match SuffixAutomaton::Repeated() const {
  if (last_ == kRoot) return {};
  const State link = nodes_[last_].link;
  return {link, nodes_[link].longest};
}

void SuffixAutomaton::Continue(Match match, int count, double share_least,
                               std::vector<TokenId>& tokens) const {
  State at = Settle(match).state;
  double share = 1.0;
  while (count-- > 0) {
    while (at != kRoot && nodes_[at].edges.empty()) at = nodes_[at].link;
    if (at == kRoot) return;
    const Edge* best = nullptr;
    int64_t total = 0;
    for (const Edge& edge : nodes_[at].edges) {
      const Node& node = nodes_[edge.to];
      total += std::max(1, node.count);
      const auto rank = [&](const Edge& e) {
        return std::pair(nodes_[e.to].count, nodes_[e.to].last_end);
      };
      if (best == nullptr || rank(edge) > rank(*best)) best = &edge;
    }
    share *= static_cast<double>(std::max(1, nodes_[best->to].count)) / static_cast<double>(total);
    if (share < share_least) return;
    tokens.push_back(best->token);
    at = best->to;
  }
}

}  // namespace quire::engine
