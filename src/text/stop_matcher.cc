#include "text/stop_matcher.h"

#include "text/byte_trie.h"

namespace quire::text {
namespace {

constexpr size_t kStopBytesMax = 64 * 1024;

}  // namespace

struct StopStrings::Automaton {
  ByteTrie trie;  // value: index of the string
  // By node: the longest proper end of the node's text that is a node too, and the longest stop
  // string (as its node) that the node's text ends in.
  std::vector<int> fallback;
  std::vector<std::optional<int>> match;

  int Next(int node, char byte) const {
    while (true) {
      if (const std::optional<int> child = trie.Child(node, byte)) return *child;
      if (node == ByteTrie::kRoot) return node;
      node = fallback[node];
    }
  }
};

Result<StopStrings> StopStrings::Create(const std::vector<std::string>& strings) {
  auto compiled = std::make_shared<Automaton>();
  Automaton& automaton = *compiled;
  size_t bytes = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty()) {
      return MakeError(ErrorKind::kUsage, "stop string {} is empty; leave it out", i);
    }
    bytes += strings[i].size();
    if (bytes > kStopBytesMax) {
      return MakeError(ErrorKind::kUsage, "the stop strings have more than {} bytes together",
                       kStopBytesMax);
    }
    automaton.trie.Insert(strings[i], static_cast<int32_t>(i));
  }
  const ByteTrie& trie = automaton.trie;
  automaton.fallback.assign(trie.size(), ByteTrie::kRoot);
  automaton.match.resize(trie.size());
  // Nodes by depth: a node's fallback is shallower than the node.
  std::vector<std::vector<int>> levels;
  for (int node = 1; node < trie.size(); ++node) {
    const size_t depth = static_cast<size_t>(trie.Depth(node));
    if (levels.size() < depth) levels.resize(depth);
    levels[depth - 1].push_back(node);
  }
  for (const std::vector<int>& level : levels) {
    for (const int node : level) {
      const int parent = trie.Parent(node);
      if (parent != ByteTrie::kRoot) {
        automaton.fallback[node] = automaton.Next(automaton.fallback[parent], trie.Byte(node));
      }
      automaton.match[node] =
          trie.Value(node) ? std::optional(node) : automaton.match[automaton.fallback[node]];
    }
  }
  return StopStrings(std::move(compiled));
}

bool StopMatcher::Append(std::string_view text, std::string& out) {
  if (stopped()) return false;
  const StopStrings::Automaton& automaton = *strings_.automaton_;
  for (size_t i = 0; i < text.size(); ++i) {
    state_ = automaton.Next(state_, text[i]);
    if (!automaton.match[state_]) continue;
    const int match = *automaton.match[state_];
    stopped_at_ = automaton.trie.Value(match);
    std::string all = std::move(held_).append(text.substr(0, i + 1));
    if (stop_text_ == StopText::kExclude) {
      all.resize(all.size() - static_cast<size_t>(automaton.trie.Depth(match)));
    }
    out.append(all);
    held_.clear();
    return false;
  }
  const size_t held = static_cast<size_t>(automaton.trie.Depth(state_));
  if (held <= text.size()) {
    out.append(held_).append(text.substr(0, text.size() - held));
    held_.assign(text.substr(text.size() - held));
  } else {
    held_.append(text);
    out.append(held_, 0, held_.size() - held);
    held_.erase(0, held_.size() - held);
  }
  return true;
}

void StopMatcher::Pass(std::string_view text, std::string& out) {
  if (stopped()) return;
  Finish(out);
  out.append(text);
}

void StopMatcher::Finish(std::string& out) {
  out.append(held_);
  held_.clear();
  state_ = ByteTrie::kRoot;
}

}  // namespace quire::text
