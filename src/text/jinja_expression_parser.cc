#include "text/jinja_expression_parser.h"

#include <iterator>

namespace quire::text::jinja {
namespace {

constexpr std::pair<std::string_view, Operator> kComparisons[] = {
    {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};

}  // namespace

ExprPtr ExpressionParser::ParseExpression(Conditionals conditionals) {
  Level level(*this);
  ExprPtr expr = ParseOr();
  while (conditionals == Conditionals::kAllowed && IsWord("if")) {
    const int at_line = Take().line;
    ExprPtr condition = ParseOr();
    ExprPtr otherwise = SkipWord("else") ? ParseExpression() : nullptr;
    expr = Node(ExprKind::kConditional, at_line, std::move(condition), std::move(expr),
                std::move(otherwise));
  }
  return expr;
}

ExprPtr ExpressionParser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (IsWord("or")) {
    const int at_line = Take().line;
    left = Node(ExprKind::kOr, at_line, std::move(left), ParseAnd());
  }
  return left;
}

ExprPtr ExpressionParser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (IsWord("and")) {
    const int at_line = Take().line;
    left = Node(ExprKind::kAnd, at_line, std::move(left), ParseNot());
  }
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  if (!IsWord("not")) return ParseComparison();
  Level level(*this);
  const int at_line = Take().line;
  return Node(ExprKind::kNot, at_line, ParseNot());
}

std::optional<Operator> ExpressionParser::TakeComparison() {
  for (const auto& [sign, op] : kComparisons) {
    if (SkipSign(sign)) return op;
  }
  if (SkipWord("in")) return Operator::kIn;
  if (IsWord("not") && IsWord("in", 1)) {
    at_ += 2;
    return Operator::kNotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::ParseComparison() {
  const int at_line = line();
  std::vector<ExprPtr> operands;
  std::vector<Operator> operators;
  operands.push_back(ParseSum());
  while (const std::optional<Operator> op = TakeComparison()) {
    operators.push_back(*op);
    operands.push_back(ParseSum());
  }
  if (operators.empty()) return std::move(operands.front());
  ExprPtr node = Node(ExprKind::kCompare, at_line, std::move(operands));
  node->operators = std::move(operators);
  return node;
}

ExprPtr ExpressionParser::Arithmetic(Operator op, int at_line, ExprPtr left, ExprPtr right) const {
  ExprPtr node = Node(ExprKind::kArithmetic, at_line, std::move(left), std::move(right));
  node->operators.push_back(op);
  return node;
}

ExprPtr ExpressionParser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (IsSign("+") || IsSign("-")) {
    const Token sign = Take();
    const Operator op = sign.text == "+" ? Operator::kAdd : Operator::kSubtract;
    left = Arithmetic(op, sign.line, std::move(left), ParseConcat());
  }
  return left;
}

ExprPtr ExpressionParser::ParseConcat() {
  const int at_line = line();
  std::vector<ExprPtr> operands;
  operands.push_back(ParseProduct());
  while (SkipSign("~")) operands.push_back(ParseProduct());
  if (operands.size() == 1) return std::move(operands.front());
  return Node(ExprKind::kConcat, at_line, std::move(operands));
}

ExprPtr ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, Operator> kSigns[] = {{"*", Operator::kMultiply},
                                                                     {"/", Operator::kDivide},
                                                                     {"//", Operator::kFloorDivide},
                                                                     {"%", Operator::kModulo}};
  ExprPtr left = ParsePower();
  for (;;) {
    const auto* found = std::find_if(std::begin(kSigns), std::end(kSigns),
                                     [this](const auto& sign) { return IsSign(sign.first); });
    if (found == std::end(kSigns)) return left;
    const int at_line = Take().line;
    left = Arithmetic(found->second, at_line, std::move(left), ParsePower());
  }
}

ExprPtr ExpressionParser::ParsePower() {
  ExprPtr left = ParseUnary(Filters::kAllowed);
  while (IsSign("**")) {
    const int at_line = Take().line;
    left = Arithmetic(Operator::kPower, at_line, std::move(left), ParseUnary(Filters::kAllowed));
  }
  return left;
}

ExprPtr ExpressionParser::ParseUnary(Filters filters) {
  ExprPtr node;
  if (IsSign("-") || IsSign("+")) {
    Level level(*this);
    const Token sign = Take();
    node = Node(sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, sign.line,
                ParseUnary(Filters::kRefused));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return filters == Filters::kAllowed ? ParseFiltersAndTests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::Constant(int at_line, Value value) const {
  ExprPtr node = Node(ExprKind::kConst, at_line);
  node->constant = std::move(value);
  return node;
}

ExprPtr ExpressionParser::ParsePrimary() {
  Level level(*this);
  const int at_line = line();
  switch (Peek().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kNumber:
      return Constant(at_line, Take().number);
    case TokenKind::kString: {
      std::string text;
      while (Peek().kind == TokenKind::kString) text += Take().text;
      return Constant(at_line, Value::String(nullptr, std::move(text)));
    }
    default:
      break;
  }
  if (SkipSign("(")) {
    ExprPtr node = ParseTuple({.parentheses = true});
    ExpectSign(")");
    return node;
  }
  if (IsSign("[")) return ParseList();
  if (IsSign("{")) return ParseDict();
  Error(fmt::format("expected an expression, found {}", Describe()));
}

ExprPtr ExpressionParser::ParseName() {
  Token token = Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Constant(token.line, Value::Bool(true));
  if (name == "false" || name == "False") return Constant(token.line, Value::Bool(false));
  if (name == "none" || name == "None") return Constant(token.line, Value::None());
  for (Macro* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
  ExprPtr node = Node(ExprKind::kName, token.line);
  node->name = std::move(token.text);
  return node;
}

ExprPtr ExpressionParser::ParseTuple(const TupleRules& rules) {
  const int at_line = line();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!AtTupleEnd(rules)) {
    items.push_back(ParseExpression(rules.conditionals));
    if (!SkipSign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items.front());
  if (!is_tuple && !rules.parentheses) {
    Error(fmt::format("expected an expression, found {}", Describe()));
  }
  return Node(ExprKind::kTuple, at_line, std::move(items));
}

bool ExpressionParser::AtTupleEnd(const TupleRules& rules) const {
  const TokenKind kind = Peek().kind;
  return kind == TokenKind::kOutputEnd || kind == TokenKind::kBlockEnd || IsSign(")") ||
         (!rules.ends_before.empty() && IsWord(rules.ends_before));
}

ExprPtr ExpressionParser::ParseList() {
  const int at_line = Take().line;
  std::vector<ExprPtr> items;
  while (!IsSign("]")) {
    items.push_back(ParseExpression());
    if (!IsSign("]")) ExpectSign(",");
  }
  ExpectSign("]");
  return Node(ExprKind::kList, at_line, std::move(items));
}

ExprPtr ExpressionParser::ParseDict() {
  const int at_line = Take().line;
  std::vector<ExprPtr> items;
  while (!IsSign("}")) {
    items.push_back(ParseExpression());
    ExpectSign(":");
    items.push_back(ParseExpression());
    if (!IsSign("}")) ExpectSign(",");
  }
  ExpectSign("}");
  return Node(ExprKind::kDict, at_line, std::move(items));
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr node) {
  for (;;) {
    if (IsSign(".")) {
      node = ParseAttribute(std::move(node));
    } else if (IsSign("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsSign("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::ParseFiltersAndTests(ExprPtr node) {
  for (;;) {
    if (IsSign("|")) {
      Take();
      node = ParseFilter(std::move(node));
    } else if (IsWord("is")) {
      node = ParseTest(std::move(node));
    } else if (IsSign("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::ParseAttribute(ExprPtr object) {
  const int at_line = Take().line;
  if (Peek().kind == TokenKind::kNumber && Peek().number.is(Kind::kInt)) {
    ExprPtr index = Constant(at_line, Take().number);
    return Node(ExprKind::kSubscript, at_line, std::move(object), std::move(index));
  }
  std::string name = ExpectName();
  ExprPtr node = Node(ExprKind::kAttribute, at_line, std::move(object));
  node->name = std::move(name);
  return node;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr object) {
  const int at_line = Take().line;
  std::vector<ExprPtr> indices;
  while (!IsSign("]")) {
    if (!indices.empty()) ExpectSign(",");
    indices.push_back(ParseIndex());
  }
  ExpectSign("]");
  ExprPtr index = indices.size() == 1 ? std::move(indices.front())
                                      : Node(ExprKind::kTuple, at_line, std::move(indices));
  return Node(ExprKind::kSubscript, at_line, std::move(object), std::move(index));
}

ExprPtr ExpressionParser::ParseIndex() {
  const int at_line = line();
  ExprPtr start = IsSign(":") ? nullptr : ParseExpression();
  if (!SkipSign(":")) return start;
  auto bound = [this]() -> ExprPtr {
    if (IsSign(":") || IsSign("]") || IsSign(",")) return nullptr;
    return ParseExpression();
  };
  ExprPtr stop = bound();
  ExprPtr step = SkipSign(":") ? bound() : nullptr;
  return Node(ExprKind::kSlice, at_line, std::move(start), std::move(stop), std::move(step));
}

ExprPtr ExpressionParser::ParseCall(ExprPtr callee) {
  ExprPtr node = Node(ExprKind::kCall, line(), std::move(callee));
  SetArguments(*node, ParseArguments());
  return node;
}

std::unique_ptr<CallArguments> ExpressionParser::ParseArguments() {
  auto arguments = std::make_unique<CallArguments>();
  ExpectSign("(");
  while (!IsSign(")")) {
    ParseArgument(*arguments);
    if (!IsSign(")")) ExpectSign(",");
  }
  ExpectSign(")");
  return arguments;
}

void ExpressionParser::ParseArgument(CallArguments& arguments) {
  const bool after_named = !arguments.named.empty() || arguments.star || arguments.double_star;
  if (SkipSign("*")) {
    if (arguments.star || arguments.double_star) Error("an argument list takes one *list");
    arguments.star = ParseExpression();
  } else if (SkipSign("**")) {
    if (arguments.double_star) Error("an argument list takes one **mapping");
    arguments.double_star = ParseExpression();
  } else if (Peek().kind == TokenKind::kName && IsSign("=", 1)) {
    if (arguments.double_star) Error("a named argument follows a **mapping");
    std::string name = Take().text;
    Take();
    for (const auto& [other, value] : arguments.named) {
      if (other == name) Error(fmt::format("the argument '{}' is given twice", name));
    }
    arguments.named.emplace_back(std::move(name), ParseExpression());
  } else {
    if (after_named) Error("a positional argument follows a named one");
    arguments.positional.push_back(ParseExpression());
  }
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = ExpectName();
  while (SkipSign(".")) name += "." + ExpectName();
  return name;
}

ExprPtr ExpressionParser::ParseFilter(ExprPtr operand) {
  const int at_line = line();
  std::string name = ParseDottedName();
  ExprPtr node = Node(ExprKind::kFilter, at_line, std::move(operand));
  node->name = std::move(name);
  if (IsSign("(")) SetArguments(*node, ParseArguments());
  return node;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr operand) {
  const int at_line = Take().line;
  const bool negated = SkipWord("not");
  std::string name = ParseDottedName();
  ExprPtr node = Node(ExprKind::kTest, at_line, std::move(operand));
  node->name = std::move(name);
  if (IsSign("(")) {
    SetArguments(*node, ParseArguments());
  } else if (StartsBareArgument()) {
    if (IsWord("is")) Error("tests cannot be chained with 'is'");
    auto arguments = std::make_unique<CallArguments>();
    arguments->positional.push_back(ParsePostfix(ParsePrimary()));
    SetArguments(*node, std::move(arguments));
  }
  return negated ? Node(ExprKind::kNot, at_line, std::move(node)) : std::move(node);
}

bool ExpressionParser::StartsBareArgument() const {
  switch (Peek().kind) {
    case TokenKind::kName:
      return !IsWord("else") && !IsWord("or") && !IsWord("and");
    case TokenKind::kString:
    case TokenKind::kNumber:
      return true;
    default:
      return IsSign("[") || IsSign("{");
  }
}

}  // namespace quire::text::jinja
