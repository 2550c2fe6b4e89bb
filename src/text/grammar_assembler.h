// GrammarAssembler: from a builder's expressions to the automaton. Used by GrammarBuilder::Build
// alone, once.
//
// First every rule becomes an automaton with empty moves (Thompson, 1968), then these go, then what
// no text can pass through goes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "text/grammar_builder.h"

namespace quire::text {

// How often the automaton of a repeated part, which has `weight` states, is written out; where that
// would be too much it is written once, as a rule that is called a counted number of times.
size_t InlineCopies(const GrammarBuilder::Repeat& repeat, size_t weight);

class GrammarAssembler {
 public:
  explicit GrammarAssembler(const GrammarBuilder& builder) : builder_(builder) {}
  Result<GrammarPtr> Assemble();

 private:
  using Expr = GrammarBuilder::Expr;
  struct Draft {
    std::vector<Grammar::ByteEdge> bytes;
    std::vector<Grammar::CallEdge> calls;
    std::vector<uint32_t> empty;        // states reached without reading
    std::optional<uint32_t> ends_rule;  // it is the last state of this rule
    bool accepts = false;               // once empty moves are gone
    std::optional<uint16_t> nesting;    // as in Grammar::State; nullopt: the end is out of reach
  };
  struct DraftRule {
    uint32_t start = 0;
    bool may_be_empty = false;
    std::vector<uint32_t> callers;  // states
  };

  uint32_t AddState();
  uint32_t RuleOfPart(Expr part);

  // The automaton of `expr` between two states.
  void Emit(Expr expr, uint32_t from, uint32_t to);
  void EmitWords(const GrammarBuilder::Words& words, uint32_t from, uint32_t to);
  void EmitCharacters(const CharacterSet& set, uint32_t from, uint32_t to);
  void EmitSequence(const GrammarBuilder::Sequence& sequence, uint32_t from, uint32_t to);
  void EmitRepeat(const GrammarBuilder::Repeat& repeat, uint32_t from, uint32_t to);
  void EmitRules();

  void FindEmptyRules();
  void DropEmptyMoves();
  Draft Closed(uint32_t state);
  void FindNesting();
  void DropDeadEdges();
  bool IsLeftRecursive() const;
  GrammarPtr Finish() const;
  void FindByteClasses(Grammar& grammar) const;

  const GrammarBuilder& builder_;
  std::vector<Draft> states_;
  std::vector<DraftRule> rules_;
  std::vector<Expr> rule_exprs_;  // of the builder's rules, then of counted parts
  std::map<Expr, uint32_t> part_rules_;
  std::vector<uint32_t> seen_;  // by state: the last closure it was part of
  uint32_t closures_ = 0;
  size_t edges_ = 0;
  bool too_large_ = false;
};

}  // namespace quire::text
