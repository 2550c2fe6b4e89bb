// The expressions of templates. The parser of statements (jinja_parser.cc) builds on it.
//
// Every recursion is counted and every tree's depth bounded: hostile nesting is an error.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace quire::text::jinja {

// Trees this deep are no template's; the stack of every walk over them is bounded.
inline constexpr int kMaxTreeDepth = 200;

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(Tokenize(source)) {}

  // One level of recursion, checked.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxTreeDepth) parser_.Error("the template nests too deeply");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // --- tokens

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return Peek().line; }
  Token Take() {
    Token token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Is(TokenKind kind, std::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == kind && Peek(ahead).text == text;
  }
  bool IsWord(std::string_view word, size_t ahead = 0) const {
    return Is(TokenKind::kName, word, ahead);
  }
  bool IsSign(std::string_view sign, size_t ahead = 0) const {
    return Is(TokenKind::kOperator, sign, ahead);
  }
  bool SkipWord(std::string_view word) { return IsWord(word) && (++at_, true); }
  bool SkipSign(std::string_view sign) { return IsSign(sign) && (++at_, true); }
  void ExpectSign(std::string_view sign) {
    if (!SkipSign(sign)) Error(fmt::format("expected '{}', found {}", sign, Describe()));
  }
  void ExpectWord(std::string_view word) {
    if (!SkipWord(word)) Error(fmt::format("expected '{}', found {}", word, Describe()));
  }
  std::string ExpectName() {
    if (Peek().kind != TokenKind::kName)
      Error(fmt::format("expected a name, found {}", Describe()));
    return Take().text;
  }
  void Expect(TokenKind kind, std::string_view what) {
    if (Peek().kind != kind) Error(fmt::format("expected {}, found {}", what, Describe()));
    Take();
  }
  std::string Describe() const {
    switch (Peek().kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kOutputBegin:
        return "{{";
      case TokenKind::kOutputEnd:
        return "}}";
      case TokenKind::kBlockBegin:
        return "{%";
      case TokenKind::kBlockEnd:
        return "%}";
      case TokenKind::kNumber:
        return "a number";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return fmt::format("'{}'", Peek().text);
    }
  }
  [[noreturn]] void Error(std::string message) const { ErrorAt(line(), std::move(message)); }
  [[noreturn]] static void ErrorAt(int line, std::string message) {
    Raise({ErrorKind::kInvalid, std::move(message), line});
  }

  // --- trees

  ExprPtr Node(ExprKind kind, int at_line, std::vector<ExprPtr> parts = {}) const {
    auto node = std::make_unique<Expr>(kind, at_line);
    for (const ExprPtr& part : parts) Cover(*node, part);
    node->parts = std::move(parts);
    return node;
  }
  template <typename... Parts>
  ExprPtr Node(ExprKind kind, int at_line, ExprPtr first, Parts... rest) const {
    std::vector<ExprPtr> parts;
    parts.push_back(std::move(first));
    (parts.push_back(std::move(rest)), ...);
    return Node(kind, at_line, std::move(parts));
  }
  void Cover(Expr& node, const ExprPtr& part) const {
    if (part == nullptr) return;
    node.depth = std::max(node.depth, part->depth + 1);
    if (node.depth > kMaxTreeDepth) Error("the expression nests too deeply");
  }
  void SetArguments(Expr& node, std::unique_ptr<CallArguments> arguments) const {
    for (const ExprPtr& part : arguments->positional) Cover(node, part);
    for (const auto& [name, part] : arguments->named) Cover(node, part);
    Cover(node, arguments->star);
    Cover(node, arguments->double_star);
    node.arguments = std::move(arguments);
  }

  // --- expressions, loosest binding first

  enum class Conditionals { kAllowed, kRefused };  // `for x in a if b`: the `if` is the loop's

  enum class Filters { kAllowed, kRefused };  // in -x|f the filter takes the negated value

  struct TupleRules {
    bool parentheses = false;  // () is a tuple then
    Conditionals conditionals = Conditionals::kAllowed;
    std::string_view ends_before = "";  // a word that ends it
  };
  ExprPtr ParseExpression(Conditionals conditionals = Conditionals::kAllowed);
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  std::optional<Operator> TakeComparison();
  ExprPtr ParseComparison();
  ExprPtr Arithmetic(Operator op, int at_line, ExprPtr left, ExprPtr right) const;
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  // in Jinja it associates to the left
  ExprPtr ParsePower();
  ExprPtr ParseUnary(Filters filters);
  ExprPtr Constant(int at_line, Value value) const;
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  // One expression, or several with commas: a tuple.
  ExprPtr ParseTuple(const TupleRules& rules);
  bool AtTupleEnd(const TupleRules& rules) const;
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFiltersAndTests(ExprPtr node);
  ExprPtr ParseAttribute(ExprPtr object);
  ExprPtr ParseSubscript(ExprPtr object);
  // An expression or a slice start:stop:step.
  ExprPtr ParseIndex();
  ExprPtr ParseCall(ExprPtr callee);
  std::unique_ptr<CallArguments> ParseArguments();
  void ParseArgument(CallArguments& arguments);
  std::string ParseDottedName();
  // Behind the |. `operand` is null for the filters of a block.
  ExprPtr ParseFilter(ExprPtr operand);
  ExprPtr ParseTest(ExprPtr operand);
  bool StartsBareArgument() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<Macro*> macros_;  // around this place
};

}  // namespace quire::text::jinja
