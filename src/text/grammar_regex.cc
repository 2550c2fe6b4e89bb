#include "text/grammar_regex.h"

#include "text/pattern_scanner.h"

namespace quire::text {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kNestingMax = 100;

class RegexParser {
 public:
  RegexParser(std::string_view pattern, GrammarBuilder& builder, const CharacterSpelling& spell)
      : scanner_(pattern, "the pattern"), builder_(builder), spell_(spell) {}

  Result<Expr> Parse() {
    QUIRE_ASSIGN_OR_RETURN(const Expr expr, ParseAlternatives(0));
    if (!scanner_.done()) return scanner_.Malformed("a parenthesis that nothing opened");
    return expr;
  }

 private:
  Result<Expr> ParseAlternatives(int nesting) {
    if (nesting > kNestingMax) return scanner_.Unsupported("groups nested more than 100 deep");
    std::vector<Expr> options;
    do {
      QUIRE_ASSIGN_OR_RETURN(const Expr option, ParseSequence(nesting));
      options.push_back(option);
    } while (scanner_.Skip("|"));
    return builder_.Either(std::move(options));
  }

  Result<Expr> ParseSequence(int nesting) {
    if (nesting == 0) scanner_.Skip("^");
    std::vector<Expr> parts;
    while (!scanner_.done() && !scanner_.Sees("|") && !scanner_.Sees(")")) {
      if (builder_.full()) return GrammarTooLarge();
      if (nesting == 0 && scanner_.Sees("$")) {
        scanner_.Skip("$");
        if (scanner_.done() || scanner_.Sees("|")) break;
        return scanner_.Unsupported("an anchor within the pattern");
      }
      QUIRE_ASSIGN_OR_RETURN(Expr part, ParseAtom(nesting));
      QUIRE_ASSIGN_OR_RETURN(const auto count, scanner_.ReadCount());
      if (count) {
        part = builder_.Times(part, count->min, count->max);
        // What is preferred does not change what matches.
        if (!scanner_.Skip("?") && scanner_.Sees("+")) {
          return scanner_.Unsupported("a possessive repetition");
        }
        if (scanner_.Sees("*") || scanner_.Sees("+") || scanner_.Sees("?")) {
          return scanner_.Malformed("a repetition of a repetition");
        }
      }
      parts.push_back(part);
    }
    return builder_.Concatenate(std::move(parts));
  }

  Result<Expr> ParseAtom(int nesting) {
    if (scanner_.Skip("(")) return ParseGroup(nesting);
    if (scanner_.Skip("[")) {
      QUIRE_ASSIGN_OR_RETURN(const CharacterSet set, scanner_.ReadClass());
      return spell_(set);
    }
    if (scanner_.Skip("\\")) {
      QUIRE_ASSIGN_OR_RETURN(const CharacterSet set, scanner_.ReadEscape());
      return spell_(set);
    }
    if (scanner_.Skip(".")) return spell_(CharacterSet('\n', '\n').Complement());
    if (scanner_.Sees("^") || scanner_.Sees("$")) {
      return scanner_.Unsupported("an anchor within the pattern");
    }
    if (scanner_.Sees("*") || scanner_.Sees("+") || scanner_.Sees("?")) {
      return scanner_.Malformed("a repetition of nothing");
    }
    if (scanner_.Sees("{")) return scanner_.Malformed("a brace that follows nothing; write \\{");
    const char32_t c = scanner_.NextCharacter();
    return spell_({c, c});
  }

  Result<Expr> ParseGroup(int nesting) {
    if (scanner_.Skip("?")) {
      const bool is_name = scanner_.Skip("P<") || (scanner_.Sees("<") && !scanner_.Sees("<=") &&
                                                   !scanner_.Sees("<!") && scanner_.Skip("<"));
      if (is_name) {
        const size_t end = scanner_.rest().find('>');
        if (end == std::string_view::npos) return scanner_.Malformed("a group's name has no end");
        scanner_.Advance(end + 1);
      } else if (scanner_.Sees("=") || scanner_.Sees("!") || scanner_.Sees("<")) {
        return scanner_.Unsupported("lookaround");
      } else if (!scanner_.Skip(":")) {
        return scanner_.Unsupported("a group of a special kind (after \"(?\")");
      }
    }
    QUIRE_ASSIGN_OR_RETURN(const Expr group, ParseAlternatives(nesting + 1));
    if (!scanner_.Skip(")")) return scanner_.Malformed("a group has no closing parenthesis");
    return group;
  }

  PatternScanner scanner_;
  GrammarBuilder& builder_;
  const CharacterSpelling& spell_;
};

}  // namespace

Result<Expr> ParseRegex(std::string_view pattern, GrammarBuilder& builder,
                        const CharacterSpelling& spell) {
  QUIRE_RETURN_IF_ERROR(CheckGrammarText(pattern, "the pattern"));
  return RegexParser(pattern, builder, spell).Parse();
}

Result<GrammarPtr> CompileRegex(std::string_view pattern) {
  GrammarBuilder builder;
  const auto spell = [&](const CharacterSet& set) { return builder.Characters(set); };
  QUIRE_ASSIGN_OR_RETURN(const Expr expr, ParseRegex(pattern, builder, spell));
  builder.Define(0, expr);
  return builder.Build();
}

Result<GrammarPtr> CompileChoice(std::span<const std::string> choices) {
  if (choices.empty()) {
    return MakeError(ErrorKind::kInvalid, "the list of choices is empty; give at least one.");
  }
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    bytes += choice.size();
    if (choice.empty()) {
      return MakeError(ErrorKind::kInvalid, "a choice is the empty text; leave it out.");
    }
    if (bytes > Grammar::kTextBytesMax) {
      return MakeError(ErrorKind::kExhausted, "the choices have more than {} bytes together.",
                       Grammar::kTextBytesMax);
    }
    QUIRE_RETURN_IF_ERROR(CheckGrammarText(choice, "a choice"));
  }
  GrammarBuilder builder;
  builder.Define(0, builder.OneOf({choices.begin(), choices.end()}));
  return builder.Build();
}

}  // namespace quire::text
