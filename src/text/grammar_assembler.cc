#include "text/grammar_assembler.h"

#include <algorithm>
#include <bitset>
#include <tuple>
#include <utility>

namespace quire::text {
namespace {

constexpr size_t kInlineWeight = 32;

// For states that come in order.
void AddOnce(std::vector<uint32_t>& states, uint32_t state) {
  if (states.empty() || states.back() != state) states.push_back(state);
}

}  // namespace

size_t InlineCopies(const GrammarBuilder::Repeat& repeat, size_t weight) {
  const bool is_loop = repeat.max == Grammar::kUnbounded && repeat.min <= 1;
  if (is_loop || repeat.max <= 1) return 1;
  const size_t copies =
      repeat.max == Grammar::kUnbounded ? size_t{repeat.min} + 1 : size_t{repeat.max};
  return copies * std::max<size_t>(weight, 1) <= kInlineWeight ? copies : 1;
}

Result<GrammarPtr> GrammarAssembler::Assemble() {
  for (const std::optional<Expr>& expr : builder_.rules()) {
    QUIRE_CHECK(expr.has_value());
    rule_exprs_.push_back(*expr);
  }
  EmitRules();
  if (!too_large_) FindEmptyRules();
  if (!too_large_) DropEmptyMoves();
  if (too_large_) return GrammarTooLarge();
  FindNesting();
  const std::optional<uint16_t> nesting = states_[rules_[0].start].nesting;
  if (!nesting) {
    return MakeError(ErrorKind::kInvalid,
                     "no text, or none but the empty one, satisfies the "
                     "grammar.");
  }
  if (*nesting > Grammar::kNestingMax) {
    return MakeError(ErrorKind::kExhausted, "the grammar nests deeper than {} rules.",
                     Grammar::kNestingMax);
  }
  DropDeadEdges();
  if (IsLeftRecursive()) {
    return MakeError(ErrorKind::kInvalid,
                     "the grammar is left-recursive: a rule reaches itself before it has read "
                     "anything. Write the repetition with * or put the recursion last.");
  }
  return Finish();
}

uint32_t GrammarAssembler::AddState() {
  if (states_.size() >= Grammar::kStatesMax) {
    too_large_ = true;
    return 0;
  }
  states_.emplace_back();
  return static_cast<uint32_t>(states_.size() - 1);
}

uint32_t GrammarAssembler::RuleOfPart(Expr part) {
  if (const auto* call = std::get_if<GrammarBuilder::Call>(&builder_.node(part))) return call->rule;
  const auto [found, is_new] =
      part_rules_.try_emplace(part, static_cast<uint32_t>(rule_exprs_.size()));
  if (is_new) rule_exprs_.push_back(part);
  return found->second;
}

void GrammarAssembler::EmitRules() {
  for (size_t rule = 0; rule < rule_exprs_.size() && !too_large_; ++rule) {
    const uint32_t start = AddState();
    const uint32_t end = AddState();
    states_[end].ends_rule = static_cast<uint32_t>(rule);
    rules_.push_back({.start = start, .may_be_empty = false, .callers = {}});
    Emit(rule_exprs_[rule], start, end);
  }
}

void GrammarAssembler::Emit(Expr expr, uint32_t from, uint32_t to) {
  if (too_large_) return;
  const GrammarBuilder::Node& node = builder_.node(expr);
  if (const auto* words = std::get_if<GrammarBuilder::Words>(&node)) {
    EmitWords(*words, from, to);
  } else if (const auto* set = std::get_if<CharacterSet>(&node)) {
    EmitCharacters(*set, from, to);
  } else if (const auto* sequence = std::get_if<GrammarBuilder::Sequence>(&node)) {
    EmitSequence(*sequence, from, to);
  } else if (const auto* choice = std::get_if<GrammarBuilder::Choice>(&node)) {
    for (const Expr option : choice->options) Emit(option, from, to);
  } else if (const auto* repeat = std::get_if<GrammarBuilder::Repeat>(&node)) {
    EmitRepeat(*repeat, from, to);
  } else {
    const uint32_t rule = std::get<GrammarBuilder::Call>(node).rule;
    states_[from].calls.push_back({.rule = rule, .target = to, .min = 1, .max = 1});
  }
}

// Words share the states of their common beginnings.
void GrammarAssembler::EmitWords(const GrammarBuilder::Words& words, uint32_t from, uint32_t to) {
  std::map<std::pair<uint32_t, uint8_t>, uint32_t> children;
  for (const std::string& word : words.words) {
    if (word.empty()) {
      states_[from].empty.push_back(to);
      continue;
    }
    uint32_t state = from;
    for (size_t i = 0; i + 1 < word.size() && !too_large_; ++i) {
      const auto byte = static_cast<uint8_t>(word[i]);
      const auto found = children.find({state, byte});
      if (found != children.end()) {
        state = found->second;
        continue;
      }
      const uint32_t child = AddState();
      states_[state].bytes.push_back({byte, byte, child});
      children[{state, byte}] = child;
      state = child;
    }
    const auto last = static_cast<uint8_t>(word.back());
    states_[state].bytes.push_back({last, last, to});
  }
}

// Characters share the states of their common ends.
void GrammarAssembler::EmitCharacters(const CharacterSet& set, uint32_t from, uint32_t to) {
  std::map<ByteRanges, uint32_t> states;  // by the bytes that lead from there to `to`
  states[{}] = to;
  for (const ByteRanges& sequence : Utf8Sequences(set)) {
    for (size_t i = sequence.size(); i-- > 0 && !too_large_;) {
      const ByteRanges rest(sequence.begin() + static_cast<std::ptrdiff_t>(i) + 1, sequence.end());
      const uint32_t target = states.at(rest);
      uint32_t state = from;
      if (i > 0) {
        const ByteRanges tail(sequence.begin() + static_cast<std::ptrdiff_t>(i), sequence.end());
        if (states.contains(tail)) continue;
        state = AddState();
        states[tail] = state;
      }
      states_[state].bytes.push_back({sequence[i].low, sequence[i].high, target});
    }
  }
}

void GrammarAssembler::EmitSequence(const GrammarBuilder::Sequence& sequence, uint32_t from,
                                    uint32_t to) {
  if (sequence.parts.empty()) {
    states_[from].empty.push_back(to);
    return;
  }
  for (size_t i = 0; i < sequence.parts.size() && !too_large_; ++i) {
    const uint32_t next = i + 1 < sequence.parts.size() ? AddState() : to;
    Emit(sequence.parts[i], from, next);
    from = next;
  }
}

void GrammarAssembler::EmitRepeat(const GrammarBuilder::Repeat& repeat, uint32_t from,
                                  uint32_t to) {
  const bool unbounded = repeat.max == Grammar::kUnbounded;
  if (repeat.min == 0) states_[from].empty.push_back(to);
  if (repeat.max == 0) return;
  if (unbounded && repeat.min <= 1) {
    const uint32_t begin = AddState();
    const uint32_t end = AddState();
    if (too_large_) return;
    states_[from].empty.push_back(begin);
    Emit(repeat.part, begin, end);
    states_[end].empty.push_back(begin);
    states_[end].empty.push_back(to);
    return;
  }
  const size_t copies = InlineCopies(repeat, builder_.weight(repeat.part));
  if (copies == 1 && repeat.max > 1) {
    states_[from].calls.push_back({.rule = RuleOfPart(repeat.part),
                                   .target = to,
                                   .min = std::max(repeat.min, 1u),
                                   .max = repeat.max});
    return;
  }
  // One copy after another; from each that may be the last a way out.
  for (size_t i = 1; i <= copies && !too_large_; ++i) {
    const bool is_last = i == copies;
    const uint32_t next = is_last && !unbounded ? to : AddState();
    Emit(repeat.part, from, next);
    if (is_last && unbounded) states_[next].empty.push_back(from);
    if (i >= repeat.min && next != to) states_[next].empty.push_back(to);
    from = next;
  }
}

// Which rules may read nothing. Each state is visited once: `reached` without reading from its
// rule's start.
void GrammarAssembler::FindEmptyRules() {
  for (uint32_t state = 0; state < states_.size(); ++state) {
    for (const Grammar::CallEdge& call : states_[state].calls) {
      AddOnce(rules_[call.rule].callers, state);
    }
  }
  std::vector<bool> reached(states_.size());
  std::vector<uint32_t> open;
  const auto reach = [&](uint32_t state) {
    if (reached[state]) return;
    reached[state] = true;
    open.push_back(state);
  };
  for (const DraftRule& rule : rules_) reach(rule.start);
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (const uint32_t next : states_[state].empty) reach(next);
    for (const Grammar::CallEdge& call : states_[state].calls) {
      if (rules_[call.rule].may_be_empty) reach(call.target);
    }
    if (!states_[state].ends_rule || rules_[*states_[state].ends_rule].may_be_empty) continue;
    DraftRule& rule = rules_[*states_[state].ends_rule];
    rule.may_be_empty = true;
    for (const uint32_t caller : rule.callers) {
      if (!reached[caller]) continue;
      for (const Grammar::CallEdge& call : states_[caller].calls) {
        if (call.rule == *states_[state].ends_rule) reach(call.target);
      }
    }
  }
  for (Draft& state : states_) {
    for (Grammar::CallEdge& call : state.calls) {
      if (!rules_[call.rule].may_be_empty) continue;
      state.empty.push_back(call.target);
      call.min = 1;
    }
  }
}

// Replaces the states by those that a rule starts with or an edge leads to, each with the edges of
// all states that it reached without reading. A rule's start does not accept: what calls a rule
// that may be empty also goes past it.
void GrammarAssembler::DropEmptyMoves() {
  seen_.assign(states_.size(), 0);
  std::vector<Draft> closed;
  std::vector<std::optional<uint32_t>> renamed(states_.size());
  std::vector<uint32_t> order;
  const auto rename = [&](uint32_t state) {
    if (!renamed[state]) {
      renamed[state] = static_cast<uint32_t>(order.size());
      order.push_back(state);
    }
    return *renamed[state];
  };
  for (DraftRule& rule : rules_) rename(rule.start);
  for (size_t i = 0; i < order.size() && !too_large_; ++i) {
    Draft draft = Closed(order[i]);
    if (i < rules_.size()) draft.accepts = false;
    for (Grammar::ByteEdge& edge : draft.bytes) edge.target = rename(edge.target);
    for (Grammar::CallEdge& edge : draft.calls) edge.target = rename(edge.target);
    closed.push_back(std::move(draft));
  }
  for (DraftRule& rule : rules_) rule.start = *renamed[rule.start];
  states_ = std::move(closed);
}

GrammarAssembler::Draft GrammarAssembler::Closed(uint32_t state) {
  Draft all;
  ++closures_;
  std::vector<uint32_t> open = {state};
  seen_[state] = closures_;
  while (!open.empty()) {
    const Draft& draft = states_[open.back()];
    open.pop_back();
    all.accepts = all.accepts || draft.ends_rule.has_value();
    all.bytes.insert(all.bytes.end(), draft.bytes.begin(), draft.bytes.end());
    all.calls.insert(all.calls.end(), draft.calls.begin(), draft.calls.end());
    edges_ += 1 + draft.bytes.size() + draft.calls.size() + draft.empty.size();
    if (edges_ > Grammar::kEdgesMax) {
      too_large_ = true;
      break;
    }
    for (const uint32_t next : draft.empty) {
      if (std::exchange(seen_[next], closures_) != closures_) open.push_back(next);
    }
  }
  const auto key = [](const Grammar::ByteEdge& e) { return std::tuple(e.low, e.high, e.target); };
  std::ranges::sort(all.bytes, {}, key);
  const auto same = std::unique(
      all.bytes.begin(), all.bytes.end(),
      [&](const Grammar::ByteEdge& a, const Grammar::ByteEdge& b) { return key(a) == key(b); });
  all.bytes.erase(same, all.bytes.end());
  return all;
}

// Level by level: what ends with no call, with calls of what has level 0, and so on.
void GrammarAssembler::FindNesting() {
  struct Incoming {
    uint32_t source;
    std::optional<uint32_t> rule;
  };
  std::vector<std::vector<Incoming>> incoming(states_.size());
  for (DraftRule& rule : rules_) rule.callers.clear();
  std::vector<std::optional<uint32_t>> starts(states_.size());
  for (uint32_t i = 0; i < rules_.size(); ++i) starts[rules_[i].start] = i;
  for (uint32_t source = 0; source < states_.size(); ++source) {
    for (const auto& edge : states_[source].bytes) incoming[edge.target].push_back({source, {}});
    for (const auto& edge : states_[source].calls) {
      incoming[edge.target].push_back({source, edge.rule});
      AddOnce(rules_[edge.rule].callers, source);
    }
  }
  std::vector<uint32_t> level;
  for (uint32_t state = 0; state < states_.size(); ++state) {
    if (states_[state].accepts) level.push_back(state);
  }
  for (uint16_t depth = 0; !level.empty() && depth < 0xffff; ++depth) {
    std::vector<uint32_t> finished_rules;
    while (!level.empty()) {
      const uint32_t state = level.back();
      level.pop_back();
      if (states_[state].nesting) continue;
      states_[state].nesting = depth;
      if (starts[state]) finished_rules.push_back(*starts[state]);
      for (const Incoming& edge : incoming[state]) {
        if (!edge.rule) {
          level.push_back(edge.source);
        } else if (const auto& rule = states_[rules_[*edge.rule].start].nesting) {
          if (*rule < depth) level.push_back(edge.source);
        }
      }
    }
    for (const uint32_t rule : finished_rules) {
      for (const uint32_t caller : rules_[rule].callers) {
        for (const Grammar::CallEdge& call : states_[caller].calls) {
          if (call.rule == rule && states_[call.target].nesting) level.push_back(caller);
        }
      }
    }
    // A call of a rule of this level whose target was known before is found above; one whose target
    // becomes known later, from `incoming`.
  }
}

void GrammarAssembler::DropDeadEdges() {
  for (Draft& state : states_) {
    std::erase_if(state.bytes, [&](const auto& edge) { return !states_[edge.target].nesting; });
    std::erase_if(state.calls, [&](const auto& edge) {
      return !states_[edge.target].nesting || !states_[rules_[edge.rule].start].nesting;
    });
  }
}

bool GrammarAssembler::IsLeftRecursive() const {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(rules_.size(), Mark::kNew);
  std::vector<std::pair<uint32_t, size_t>> path;  // a rule, and the next of its first calls
  for (uint32_t root = 0; root < rules_.size(); ++root) {
    if (marks[root] != Mark::kNew) continue;
    marks[root] = Mark::kOpen;
    path.emplace_back(root, 0);
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      const std::vector<Grammar::CallEdge>& calls = states_[rules_[rule].start].calls;
      if (next == calls.size()) {
        marks[rule] = Mark::kDone;
        path.pop_back();
        continue;
      }
      const uint32_t callee = calls[next++].rule;
      if (marks[callee] == Mark::kOpen) return true;
      if (marks[callee] == Mark::kDone) continue;
      marks[callee] = Mark::kOpen;
      path.emplace_back(callee, 0);
    }
  }
  return false;
}

GrammarPtr GrammarAssembler::Finish() const {
  auto grammar = std::make_shared<Grammar>();
  for (const Draft& draft : states_) {
    grammar->states_.push_back({.bytes_begin = static_cast<uint32_t>(grammar->byte_edges_.size()),
                                .calls_begin = static_cast<uint32_t>(grammar->call_edges_.size()),
                                .accepts = draft.accepts,
                                .nesting = draft.nesting.value_or(0)});
    grammar->byte_edges_.insert(grammar->byte_edges_.end(), draft.bytes.begin(), draft.bytes.end());
    grammar->call_edges_.insert(grammar->call_edges_.end(), draft.calls.begin(), draft.calls.end());
  }
  grammar->states_.push_back({.bytes_begin = static_cast<uint32_t>(grammar->byte_edges_.size()),
                              .calls_begin = static_cast<uint32_t>(grammar->call_edges_.size())});
  for (const DraftRule& rule : rules_) {
    grammar->rules_.push_back({rule.start, states_[rule.start].nesting.value_or(0)});
  }
  grammar->accepts_empty_ = rules_[0].may_be_empty;
  FindByteClasses(*grammar);
  return grammar;
}

// A new class begins wherever some edge begins or has just ended.
void GrammarAssembler::FindByteClasses(Grammar& grammar) const {
  std::bitset<257> begins;
  for (const Grammar::ByteEdge& edge : grammar.byte_edges_) {
    begins.set(edge.low);
    begins.set(static_cast<size_t>(edge.high) + 1);
  }
  int current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins.test(byte)) ++current;
    grammar.byte_classes_[byte] = static_cast<uint8_t>(current);
  }
  grammar.byte_class_count_ = current + 1;
}

}  // namespace quire::text
