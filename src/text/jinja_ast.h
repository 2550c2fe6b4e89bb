// The parsed template: expressions and statements as plain trees.
//
// Invariant: no tree is deeper than the parser's limit, so that walking and freeing it by recursion
// is safe. Immutable after parsing; shared by concurrent renderings.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace quire::text::jinja {

enum class ExprKind : uint8_t {
  kConst,        // constant
  kName,         // name
  kList,         // parts: items
  kTuple,        // parts: items
  kDict,         // parts: key, value, key, value, ...
  kAttribute,    // parts: object; name
  kSubscript,    // parts: object, index
  kSlice,        // parts: start, stop, step, each may be null; only as index of kSubscript
  kCall,         // parts: callee; arguments
  kFilter,       // parts: operand (null: the text of a block); name; arguments
  kTest,         // parts: operand; name; arguments
  kNot,          // parts: operand
  kNegate,       // parts: operand
  kPlus,         // parts: operand
  kAnd,          // parts: left, right
  kOr,           // parts: left, right
  kConditional,  // parts: condition, then, otherwise (may be null)
  kCompare,      // parts: n + 1 operands; operators: n
  kArithmetic,   // parts: left, right; operators: 1
  kConcat        // parts: operands of ~
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *iterable
  ExprPtr double_star;  // **mapping
};

struct Expr {
  Expr(ExprKind expr_kind, int at_line) : kind(expr_kind), line(at_line) {}

  ExprKind kind;
  int line;
  int depth = 1;  // of this subtree
  std::vector<Operator> operators;
  std::string name;
  Value constant;
  std::vector<ExprPtr> parts;
  std::unique_ptr<CallArguments> arguments;  // null: none
};

// What `set` and `for` assign to.
enum class TargetKind : uint8_t {
  kName,       // name
  kAttribute,  // name.attribute, of a namespace
  kTuple       // parts
};

struct Target {
  TargetKind kind = TargetKind::kName;
  int line = 0;
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
};

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // value
  kIf,           // value: condition; body; otherwise
  kFor,          // target; value: iterable; condition: filter or null; body; otherwise
  kSet,          // target; value
  kSetBlock,     // target; value: filters of the block or null; body
  kFilterBlock,  // value: filters of the block; body
  kWith,         // bindings; body
  kScope,        // body, in a scope of its own
  kMacro,        // macro
  kCallBlock,    // value: the call; macro: what caller() runs
  kBreak,
  kContinue
};

struct Statement;
using Body = std::vector<Statement>;

struct Macro;

struct Statement {
  Statement(StatementKind statement_kind, int at_line) : kind(statement_kind), line(at_line) {}

  StatementKind kind;
  int line;
  bool is_recursive = false;  // kFor
  std::string text;
  Target target;
  ExprPtr value;
  ExprPtr condition;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
  Body otherwise;
  std::unique_ptr<Macro> macro;
};

struct Macro {
  std::string name;  // empty: the body of a call block
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  // Which of the special names the body mentions: they decide which calls are accepted.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

}  // namespace quire::text::jinja
