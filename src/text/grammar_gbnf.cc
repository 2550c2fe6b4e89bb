#include "text/grammar_gbnf.h"

#include <map>

#include "text/pattern_scanner.h"
#include "text/utf8.h"

namespace quire::text {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kNestingMax = 100;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view grammar, GrammarBuilder& builder)
      : scanner_(grammar, "the grammar"), builder_(builder) {}

  Status Parse() {
    SkipBlanks();
    while (!scanner_.done()) {
      const std::string name = ReadName();
      if (name.empty()) return scanner_.Malformed("the name of a rule was expected");
      if (!SkipAssignment()) return scanner_.Malformed("\"::=\" was expected");
      if (first_rule_.empty()) first_rule_ = name;
      const GrammarBuilder::RuleId rule = RuleNamed(name);
      QUIRE_ASSIGN_OR_RETURN(const Expr expr, ParseAlternatives(0));
      if (builder_.rules()[rule]) {
        return scanner_.Malformed("the rule " + name + " is defined twice");
      }
      builder_.Define(rule, expr);
      if (scanner_.Sees(")")) return scanner_.Malformed("a parenthesis that nothing opened");
      while (scanner_.Skip(";")) SkipBlanks();
    }
    for (const auto& [name, rule] : rules_) {
      if (builder_.rules()[rule]) continue;
      return MakeError(ErrorKind::kInvalid,
                       "the grammar uses the rule {}, which it does not define.", name);
    }
    if (rules_.empty()) return MakeError(ErrorKind::kInvalid, "the grammar has no rules.");
    const std::string root = rules_.contains("root") ? "root" : first_rule_;
    builder_.Define(0, builder_.CallTo(rules_.at(root)));
    return Ok{};
  }

 private:
  // White space and comments.
  void SkipBlanks() {
    while (!scanner_.done()) {
      const char c = scanner_.rest().front();
      if (c == '#' || scanner_.Sees("//")) {
        const size_t end = scanner_.rest().find('\n');
        scanner_.Advance(end == std::string_view::npos ? scanner_.rest().size() : end);
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        scanner_.Advance(1);
      } else {
        return;
      }
    }
  }

  std::string ReadName() {
    size_t length = 0;
    while (length < scanner_.rest().size() && IsNameCharacter(scanner_.rest()[length])) ++length;
    std::string name(scanner_.rest().substr(0, length));
    scanner_.Advance(length);
    SkipBlanks();
    return name;
  }

  bool SkipAssignment() {
    const bool found = scanner_.Skip("::=") || scanner_.Skip(":=") || scanner_.Skip("=");
    SkipBlanks();
    return found;
  }

  // A name here belongs to the next rule. (Rules need no terminator, and may go on in the next
  // line.)
  bool SeesRule() {
    const PatternScanner before = scanner_;
    const bool sees = !ReadName().empty() && SkipAssignment();
    scanner_ = before;
    return sees;
  }

  GrammarBuilder::RuleId RuleNamed(const std::string& name) {
    const auto [found, is_new] = rules_.try_emplace(name, 0);
    if (is_new) found->second = builder_.AddRule();
    return found->second;
  }

  Result<Expr> ParseAlternatives(int nesting) {
    if (nesting > kNestingMax) return scanner_.Unsupported("groups nested more than 100 deep");
    std::vector<Expr> options;
    do {
      SkipBlanks();
      QUIRE_ASSIGN_OR_RETURN(const Expr option, ParseSequence(nesting));
      options.push_back(option);
    } while (scanner_.Skip("|"));
    return builder_.Either(std::move(options));
  }

  Result<Expr> ParseSequence(int nesting) {
    std::vector<Expr> parts;
    while (!scanner_.done() && !scanner_.Sees("|") && !scanner_.Sees(")") && !scanner_.Sees(";")) {
      if (builder_.full()) return GrammarTooLarge();
      if (IsNameCharacter(scanner_.rest().front()) && SeesRule()) break;
      QUIRE_ASSIGN_OR_RETURN(Expr part, ParseAtom(nesting));
      SkipBlanks();
      for (int counts = 0;; ++counts) {
        QUIRE_ASSIGN_OR_RETURN(const auto count, scanner_.ReadCount());
        if (!count) break;
        if (counts == 4) return scanner_.Malformed("a repetition of a repetition");
        part = builder_.Times(part, count->min, count->max);
        SkipBlanks();
      }
      parts.push_back(part);
    }
    return builder_.Concatenate(std::move(parts));
  }

  Result<Expr> ParseAtom(int nesting) {
    if (scanner_.Skip("(")) {
      QUIRE_ASSIGN_OR_RETURN(const Expr group, ParseAlternatives(nesting + 1));
      if (!scanner_.Skip(")")) return scanner_.Malformed("a group has no closing parenthesis");
      return group;
    }
    if (scanner_.Skip("[")) {
      QUIRE_ASSIGN_OR_RETURN(const CharacterSet set, scanner_.ReadClass());
      return builder_.Characters(set);
    }
    if (scanner_.Skip(".")) return builder_.Characters(CharacterSet::All());
    if (scanner_.Skip("\"")) return ParseText("\"");
    if (scanner_.Skip("'")) return ParseText("'");
    const std::string name = ReadName();
    if (name.empty()) return scanner_.Malformed("a text, class, group or rule was expected");
    return builder_.CallTo(RuleNamed(name));
  }

  Result<Expr> ParseText(std::string_view quote) {
    std::string text;
    while (!scanner_.Skip(quote)) {
      if (scanner_.done()) return scanner_.Malformed("a text has no closing quotation mark");
      char32_t c = scanner_.NextCharacter();
      if (c == '\\') {
        QUIRE_ASSIGN_OR_RETURN(const CharacterSet set, scanner_.ReadEscape());
        c = set.ranges().front().low;
        if (set.ranges().size() != 1 || set.ranges().front().high != c) {
          return scanner_.Malformed("a class of characters within a text");
        }
      }
      AppendCharacter(c, text);
    }
    return builder_.Literal(text);
  }

  PatternScanner scanner_;
  GrammarBuilder& builder_;
  std::map<std::string, GrammarBuilder::RuleId> rules_;
  std::string first_rule_;
};

}  // namespace

Status ParseGbnf(std::string_view grammar, GrammarBuilder& builder) {
  QUIRE_RETURN_IF_ERROR(CheckGrammarText(grammar, "the grammar"));
  return GbnfParser(grammar, builder).Parse();
}

Result<GrammarPtr> CompileGbnf(std::string_view grammar) {
  GrammarBuilder builder;
  QUIRE_RETURN_IF_ERROR(ParseGbnf(grammar, builder));
  return builder.Build();
}

}  // namespace quire::text
