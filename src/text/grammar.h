// Grammar: the texts that an output may be, compiled to an automaton over bytes.
//
// JSON schemas, regular expressions, lists of choices and grammars in GBNF compile to one form: a
// set of rules, each a finite automaton without empty moves whose edges either read a byte or call
// a rule a number of times. Counts are kept as numbers while matching: maxLength 1e9 costs no more
// than maxLength 10.
//
// What always holds of a Grammar: every rule reads at least one byte (that a text may be empty is
// noted apart); no rule reaches itself before reading a byte; from every state the end of its rule
// can be reached within the nesting limit. So a matcher never loops and never ends in a dead end.
//
// Immutable; any thread. Errors name what is wrong or not supported, and where: kInvalid for what
// is malformed or matches no text, kUnsupported for the rest, kExhausted for what is too large.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::text {

class Grammar {
 public:
  static constexpr uint32_t kUnbounded = 0xffffffff;
  static constexpr int kNestingMax = 200;        // calls within calls while matching
  static constexpr int kStatesMax = 1 << 17;     // of one grammar
  static constexpr int kEdgesMax = 1 << 20;      // likewise
  static constexpr int kTextBytesMax = 1 << 18;  // of a schema, pattern or grammar

  struct ByteEdge {
    uint8_t low = 0;
    uint8_t high = 0;  // included
    uint32_t target = 0;
  };
  // The rule is read `min` to `max` times in a row; max is at least 1.
  struct CallEdge {
    uint32_t rule = 0;
    uint32_t target = 0;
    uint32_t min = 1;
    uint32_t max = 1;
  };
  struct State {
    uint32_t bytes_begin = 0;  // the edges end where the next state's begin
    uint32_t calls_begin = 0;
    bool accepts = false;  // the rule may end here
    uint16_t nesting = 0;  // calls within calls that are needed from here to the rule's end
  };
  struct Rule {
    uint32_t start = 0;
    uint16_t nesting = 0;
  };

  std::span<const ByteEdge> bytes(uint32_t state) const {
    return Slice(byte_edges_, states_[state].bytes_begin, states_[state + 1].bytes_begin);
  }
  std::span<const CallEdge> calls(uint32_t state) const {
    return Slice(call_edges_, states_[state].calls_begin, states_[state + 1].calls_begin);
  }
  const CallEdge& call(uint32_t edge) const { return call_edges_[edge]; }
  uint32_t call_index(const CallEdge& edge) const {
    return static_cast<uint32_t>(&edge - call_edges_.data());
  }
  const State& state(uint32_t state) const { return states_[state]; }
  const Rule& rule(uint32_t rule) const { return rules_[rule]; }
  // The rule may end here and cannot go on.
  bool only_ends(uint32_t state) const {
    return states_[state].accepts && bytes(state).empty() && calls(state).empty();
  }

  uint32_t root() const { return 0; }  // rule 0
  bool accepts_empty() const { return accepts_empty_; }
  int states() const { return static_cast<int>(states_.size()) - 1; }
  // Bytes of one class are read alike by every edge.
  uint8_t byte_class(uint8_t byte) const { return byte_classes_[byte]; }
  int byte_class_count() const { return byte_class_count_; }

 private:
  friend class GrammarAssembler;
  template <typename T>
  static std::span<const T> Slice(const std::vector<T>& all, uint32_t begin, uint32_t end) {
    return std::span<const T>(all).subspan(begin, end - begin);
  }

  std::vector<State> states_;  // and one past the last
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<Rule> rules_;
  std::array<uint8_t, 256> byte_classes_ = {};
  int byte_class_count_ = 1;
  bool accepts_empty_ = false;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// JSON that is valid under `schema`, in compact form: at most one space after a comma or colon, no
// other white space. docs/STRUCTURED_OUTPUTS.md lists what is supported.
Result<GrammarPtr> CompileJsonSchema(const boost::json::value& schema);

// Any JSON object.
Result<GrammarPtr> CompileJsonObject();

// The whole text matches `pattern` (UTF-8): a common subset of the dialects, without lookaround,
// backreferences and Unicode properties. \d, \w and \s are those of ASCII.
Result<GrammarPtr> CompileRegex(std::string_view pattern);

// One of the texts, none of which is empty.
Result<GrammarPtr> CompileChoice(std::span<const std::string> choices);

// GBNF: rules `name ::= ...`; the text is a `root`, or where there is none, what the first rule
// says. := and = may stand for ::=, and a rule may end in a semicolon.
Result<GrammarPtr> CompileGbnf(std::string_view grammar);

}  // namespace quire::text
