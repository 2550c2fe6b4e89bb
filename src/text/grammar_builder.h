// GrammarBuilder: makes a Grammar of expressions. The front ends (schema, regex, GBNF) write
// expressions; Build turns them into the automaton.
//
// Expressions are indices into the builder that made them, and may be used many times. Once too
// much was added, nothing more is stored and Build says so: a front end need only stop in time
// (full()). One builder makes one grammar; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/character_set.h"
#include "text/grammar.h"

namespace quire::text {

class GrammarBuilder {
 public:
  using Expr = uint32_t;
  using RuleId = uint32_t;

  // What an expression is. An empty choice matches nothing, an empty sequence the empty text.
  struct Words {
    std::vector<std::string> words;  // one of them
  };
  struct Sequence {
    std::vector<Expr> parts;
  };
  struct Choice {
    std::vector<Expr> options;
  };
  struct Repeat {
    Expr part = 0;
    uint32_t min = 0;
    uint32_t max = 0;  // Grammar::kUnbounded: no limit
  };
  struct Call {
    RuleId rule = 0;
  };
  using Node = std::variant<Sequence, Words, CharacterSet, Choice, Repeat, Call>;

  GrammarBuilder();

  Expr Empty() const { return 0; }
  Expr Literal(std::string_view bytes) { return OneOf({std::string(bytes)}); }
  Expr OneOf(std::vector<std::string> words);
  Expr Characters(const CharacterSet& set);  // one character of the set
  Expr Concatenate(std::vector<Expr> parts);
  Expr Either(std::vector<Expr> options);
  Expr Optional(Expr part) { return Times(part, 0, 1); }
  Expr Times(Expr part, uint32_t min, uint32_t max);

  // Rules may be called before they are defined. Rule 0 exists from the start: the whole text.
  RuleId AddRule();
  void Define(RuleId rule, Expr expr) { rules_[rule] = expr; }
  Expr CallTo(RuleId rule) { return Add(Call{rule}, 1); }

  bool full() const { return full_; }
  const Node& node(Expr expr) const { return nodes_[expr]; }
  size_t weight(Expr expr) const { return weights_[expr]; }  // about its states, each counted once
  std::span<const std::optional<Expr>> rules() const { return rules_; }

  // kInvalid if a rule can reach itself without reading anything (left recursion), or no text
  // matches; kExhausted if the grammar is too large or nests too deeply.
  Result<GrammarPtr> Build() const;

 private:
  Expr Add(Node node, size_t weight);

  std::vector<Node> nodes_;
  std::vector<size_t> weights_;  // by expression
  std::vector<std::optional<Expr>> rules_;
  size_t size_ = 0;
  bool full_ = false;
};

// The same as an error of the front ends, which use it before they go on.
Error GrammarTooLarge();

}  // namespace quire::text
