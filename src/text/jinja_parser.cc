#include "text/jinja_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "text/jinja_expression_parser.h"

namespace quire::text::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Body Run() { return ParseBody({}); }

 private:
  // Statements up to one of the tags `ends`, whose name is the next token then; up to the end of
  // the template where `ends` is empty.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    Level level(*this);
    Body body;
    for (;;) {
      switch (Peek().kind) {
        case TokenKind::kEnd:
          if (ends.size() > 0)
            Error(fmt::format("expected {{% {} %}}, found the end of the template",
                              *(ends.end() - 1)));
          return body;
        case TokenKind::kText: {
          Statement text(StatementKind::kText, line());
          text.text = Take().text;
          body.push_back(std::move(text));
          break;
        }
        case TokenKind::kOutputBegin: {
          Statement output(StatementKind::kOutput, Take().line);
          output.value = ParseTuple({});
          Expect(TokenKind::kOutputEnd, "}}");
          body.push_back(std::move(output));
          break;
        }
        default:
          Take();
          for (std::string_view end : ends) {
            if (IsWord(end)) return body;
          }
          ParseStatement(body);
          Expect(TokenKind::kBlockEnd, "%}");
      }
    }
  }

  // The body of a tag whose head was just read, its end tag's name included.
  Body ParseBodyUntil(std::string_view end) {
    EndOfHead();
    Body body = ParseBody({end});
    Take();
    return body;
  }

  void EndOfHead() {
    SkipSign(":");
    Expect(TokenKind::kBlockEnd, "%}");
  }

  void ParseStatement(Body& body) {
    using Method = void (Parser::*)(Statement&);
    struct Tag {
      std::string_view name;
      StatementKind kind;
      Method parse;
    };
    static constexpr Tag kTags[] = {
        {"if", StatementKind::kIf, &Parser::ParseIf},
        {"for", StatementKind::kFor, &Parser::ParseFor},
        {"set", StatementKind::kSet, &Parser::ParseSet},
        {"macro", StatementKind::kMacro, &Parser::ParseMacro},
        {"call", StatementKind::kCallBlock, &Parser::ParseCallBlock},
        {"filter", StatementKind::kFilterBlock, &Parser::ParseFilterBlock},
        {"with", StatementKind::kWith, &Parser::ParseWith},
        {"generation", StatementKind::kScope, &Parser::ParseGeneration},
        {"break", StatementKind::kBreak, &Parser::ParseJump},
        {"continue", StatementKind::kContinue, &Parser::ParseJump},
    };
    const int at_line = line();
    const std::string name = ExpectName();
    if (name == "print") return ParsePrint(body);
    for (const Tag& tag : kTags) {
      if (tag.name != name) continue;
      Statement statement(tag.kind, at_line);
      (this->*tag.parse)(statement);
      body.push_back(std::move(statement));
      return;
    }
    ErrorAt(at_line, fmt::format("unknown tag '{}'", name));
  }

  void ParsePrint(Body& body) {
    do {
      Statement output(StatementKind::kOutput, line());
      output.value = ParseExpression();
      body.push_back(std::move(output));
    } while (SkipSign(","));
  }

  void ParseIf(Statement& statement) {
    Level level(*this);
    statement.value = ParseTuple({.conditionals = Conditionals::kRefused});
    EndOfHead();
    statement.body = ParseBody({"elif", "else", "endif"});
    if (IsWord("elif")) {
      Statement nested(StatementKind::kIf, Take().line);
      ParseIf(nested);
      statement.otherwise.push_back(std::move(nested));
    } else if (SkipWord("else")) {
      statement.otherwise = ParseBodyUntil("endif");
    } else {
      Take();
    }
  }

  void ParseFor(Statement& statement) {
    statement.target = ParseTarget("in", Namespaces::kRefused);
    ExpectWord("in");
    statement.value =
        ParseTuple({.conditionals = Conditionals::kRefused, .ends_before = "recursive"});
    if (SkipWord("if")) statement.condition = ParseExpression();
    statement.is_recursive = SkipWord("recursive");
    EndOfHead();
    ++loops_;
    statement.body = ParseBody({"else", "endfor"});
    --loops_;
    if (SkipWord("else")) {
      statement.otherwise = ParseBodyUntil("endfor");
    } else {
      Take();
    }
  }

  void ParseSet(Statement& statement) {
    statement.target = ParseTarget("", Namespaces::kAllowed);
    if (SkipSign("=")) {
      statement.value = ParseTuple({});
      return;
    }
    statement.kind = StatementKind::kSetBlock;
    while (SkipSign("|")) statement.value = ParseFilter(std::move(statement.value));
    statement.body = ParseBodyUntil("endset");
  }

  void ParseFilterBlock(Statement& statement) {
    statement.value = ParseFilter(nullptr);
    while (SkipSign("|")) statement.value = ParseFilter(std::move(statement.value));
    statement.body = ParseBodyUntil("endfilter");
  }

  void ParseWith(Statement& statement) {
    while (Peek().kind != TokenKind::kBlockEnd) {
      if (!statement.bindings.empty()) ExpectSign(",");
      Target target = ParseTarget("", Namespaces::kRefused);
      ExpectSign("=");
      statement.bindings.emplace_back(std::move(target), ParseExpression());
    }
    statement.body = ParseBodyUntil("endwith");
  }

  // Marks what the assistant generates, for training; rendering only needs the body.
  void ParseGeneration(Statement& statement) {
    const int loops = std::exchange(loops_, 0);
    statement.body = ParseBodyUntil("endgeneration");
    loops_ = loops;
  }

  void ParseJump(Statement& statement) {
    if (loops_ == 0) ErrorAt(statement.line, "break and continue belong into a loop");
  }

  void ParseMacro(Statement& statement) {
    statement.macro = std::make_unique<Macro>();
    statement.macro->name = ExpectName();
    ParseSignature(*statement.macro);
    ParseMacroBody(*statement.macro, "endmacro");
  }

  void ParseCallBlock(Statement& statement) {
    statement.macro = std::make_unique<Macro>();
    if (IsSign("(")) ParseSignature(*statement.macro);
    statement.value = ParseExpression();
    if (statement.value->kind != ExprKind::kCall) ErrorAt(statement.line, "expected a call");
    ParseMacroBody(*statement.macro, "endcall");
  }

  void ParseMacroBody(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);  // a jump cannot leave the macro
    macros_.push_back(&macro);
    macro.body = ParseBodyUntil(end);
    macros_.pop_back();
    loops_ = loops;
  }

  void ParseSignature(Macro& macro) {
    ExpectSign("(");
    while (!IsSign(")")) {
      if (!macro.parameters.empty()) ExpectSign(",");
      std::string name = ExpectName();
      if (std::find(macro.parameters.begin(), macro.parameters.end(), name) !=
          macro.parameters.end()) {
        Error(fmt::format("the parameter '{}' is named twice", name));
      }
      macro.parameters.push_back(std::move(name));
      if (SkipSign("=")) {
        macro.defaults.push_back(ParseExpression());
      } else if (!macro.defaults.empty()) {
        Error("a parameter without a default follows one with a default");
      }
    }
    ExpectSign(")");
  }

  enum class Namespaces { kAllowed, kRefused };  // whether ns.attribute may be assigned to

  // A name, ns.attribute, or several of them with commas, up to the word `end`.
  Target ParseTarget(std::string_view end, Namespaces namespaces) {
    Target target = ParseSingleTarget(namespaces);
    if (!IsSign(",")) return target;
    Target tuple{TargetKind::kTuple, target.line, "", "", {}};
    tuple.parts.push_back(std::move(target));
    while (SkipSign(",")) {
      if (IsSign("=") || IsSign(")") || (!end.empty() && IsWord(end))) break;
      if (Peek().kind == TokenKind::kBlockEnd) break;
      tuple.parts.push_back(ParseSingleTarget(namespaces));
    }
    return tuple;
  }

  Target ParseSingleTarget(Namespaces namespaces) {
    Level level(*this);
    const int at_line = line();
    if (SkipSign("(")) {
      Target inner = ParseTarget("", namespaces);
      ExpectSign(")");
      return inner;
    }
    Target target{TargetKind::kName, at_line, ExpectName(), "", {}};
    static constexpr std::array<std::string_view, 6> kReserved = {"true", "false", "none",
                                                                  "True", "False", "None"};
    if (std::find(kReserved.begin(), kReserved.end(), target.name) != kReserved.end()) {
      ErrorAt(at_line, fmt::format("cannot assign to '{}'", target.name));
    }
    if (namespaces == Namespaces::kAllowed && SkipSign(".")) {
      target.kind = TargetKind::kAttribute;
      target.attribute = ExpectName();
    }
    return target;
  }

  int loops_ = 0;  // loops around this place within the macro
};

}  // namespace

Body Parse(std::string_view source) {
  return Parser(source).Run();
}

}  // namespace quire::text::jinja
