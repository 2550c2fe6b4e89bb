// JsonExpressions: JSON's values as grammar expressions, compact: at most one space after a comma
// or colon, no other white space.
//
// What a small model could go on with forever is bounded: a number has at most 18 digits before the
// point, 17 after it and an exponent of two digits. Every text is what a JSON parser reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "text/grammar_builder.h"

namespace quire::text {

// `value` as this grammar writes it.
std::string CompactJson(const boost::json::value& value);

class JsonExpressions {
 public:
  using Expr = GrammarBuilder::Expr;

  explicit JsonExpressions(GrammarBuilder& builder) : builder_(builder) {}

  Expr Comma() { return Punctuation(", "); }
  Expr Colon() { return Punctuation(": "); }

  // A character of a string's content: itself, or where it has to be, escaped.
  Expr Spelled(const CharacterSet& set);
  Expr AnyCharacter();  // or any escape
  Expr Quoted(Expr content);
  Expr String() { return Once(string_, &JsonExpressions::MakeString); }
  // A string that is none of `names`, without escapes. kUnsupported if there are too many.
  Result<Expr> StringOtherThan(std::vector<std::string> names);

  Expr Boolean() { return builder_.OneOf({"true", "false"}); }
  Expr Null() { return builder_.Literal("null"); }
  Expr Integer() { return Once(integer_, &JsonExpressions::MakeInteger); }
  Expr Number() { return Once(number_, &JsonExpressions::MakeNumber); }

  Expr Value() { return Once(value_, &JsonExpressions::MakeValue); }
  Expr Array() { return Once(array_, &JsonExpressions::MakeArray); }
  Expr Object() { return Once(object_, &JsonExpressions::MakeObject); }

  // `first (, rest)*`, `min` to `max` of them; `max` at least 1.
  Expr List(Expr item, uint32_t min, uint32_t max);
  // `items` between the brackets, e.g. "[]".
  Expr Enclosed(std::string_view brackets, Expr items);

 private:
  using Maker = Expr (JsonExpressions::*)();
  Expr Once(std::optional<GrammarBuilder::RuleId>& rule, Maker make);
  Expr Punctuation(std::string_view with_space);
  Expr DigitsUpTo(uint32_t max);
  Expr MakeString();
  Expr MakeInteger();
  Expr MakeNumber();
  Expr MakeValue();
  Expr MakeArray();
  Expr MakeObject();

  GrammarBuilder& builder_;
  std::optional<GrammarBuilder::RuleId> string_, integer_, number_, value_, array_, object_;
};

struct NumberBound {
  boost::json::value value;  // a number
  bool exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> low;
  std::optional<NumberBound> high;
};

enum class NumberKind { kInteger, kNumber };

// The numbers of a range that has at least one bound, without exponents. Integers and decimal
// fractions are compared digit by digit, so the bounds are exact. nullopt: there are none.
// kUnsupported for bounds of 10^18 and more.
Result<std::optional<GrammarBuilder::Expr>> NumbersWithin(const NumberRange& range, NumberKind kind,
                                                          GrammarBuilder& builder);

}  // namespace quire::text
