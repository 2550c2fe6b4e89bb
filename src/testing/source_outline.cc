// OutlineOf: functions and their parameters, found by walking namespace and class scopes.
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "testing/source_scan.h"

namespace quire::testing {
namespace {

bool IsIdentifier(std::string_view token) {
  return std::isalpha(static_cast<unsigned char>(token[0])) || token[0] == '_';
}

// A macro by our naming: TEST_F, QUIRE_TARGET.
bool IsMacroName(std::string_view token) {
  return token.size() > 1 && std::all_of(token.begin(), token.end(), [](char c) {
           return std::isupper(static_cast<unsigned char>(c)) ||
                  std::isdigit(static_cast<unsigned char>(c)) || c == '_';
         });
}

// Parentheses after these do not hold a function's parameters.
bool TakesNoParameters(std::string_view token) {
  static constexpr std::array<std::string_view, 9> kWords = {
      "requires",      "decltype", "noexcept", "alignas",      "explicit",
      "__attribute__", "sizeof",   "alignof",  "static_assert"};
  return std::find(kWords.begin(), kWords.end(), token) != kWords.end();
}

enum class BraceKind { kScope, kFunction, kSkipped };

class Outliner {
 public:
  explicit Outliner(const SourceFile& file) : tokens_(Tokenize(file)) {}

  Outline Run() {
    outline_.balanced = MatchBrackets();
    if (outline_.balanced) WalkScope(0);
    return std::move(outline_);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::string_view Text(size_t i) const { return tokens_[i].text; }

  bool MatchBrackets() {
    partner_.assign(tokens_.size(), kNone);
    std::vector<size_t> open;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view text = Text(i);
      if (text == "(" || text == "[" || text == "{") open.push_back(i);
      if (text != ")" && text != "]" && text != "}") continue;
      const std::string_view wanted = text == ")" ? "(" : text == "]" ? "[" : "{";
      if (open.empty() || Text(open.back()) != wanted) return false;
      partner_[open.back()] = i;
      open.pop_back();
    }
    return open.empty();
  }

  // The `>` that closes the `<` at `open`, if it is a template's and lies before `end`.
  size_t AngleEnd(size_t open, size_t end) const {
    int depth = 0;
    for (size_t i = open; i < end; ++i) {
      if (partner_[i] != kNone) {
        i = partner_[i];
      } else if (Text(i) == "<") {
        ++depth;
      } else if (Text(i) == ">" && --depth == 0) {
        return i;
      } else if (Text(i) == ";") {
        return kNone;
      }
    }
    return kNone;
  }

  // The token after `i` at the same level: groups in brackets and template arguments are one step.
  size_t Next(size_t i, size_t end) const {
    if (partner_[i] != kNone) return partner_[i] + 1;
    if (Text(i) == "<" && i > 0 && IsIdentifier(Text(i - 1)) && Text(i - 1) != "operator") {
      const size_t close = AngleEnd(i, end);
      if (close != kNone) return close + 1;
    }
    return i + 1;
  }

  // Walks declarations from `i` to the scope's closing brace (or the end); returns what follows.
  size_t WalkScope(size_t i) {
    size_t head = i;
    while (i < tokens_.size()) {
      const std::string_view text = Text(i);
      if (text == "}") return i + 1;
      if (text == ";") {
        AddFunction(head, i, i);
        head = ++i;
      } else if (text == ":" && i == head + 1 && IsAccess(Text(head))) {
        head = ++i;
      } else if (text == "{") {
        const BraceKind kind = Classify(head, i);
        if (kind == BraceKind::kScope) {
          i = WalkScope(i + 1);
          head = i;
        } else if (kind == BraceKind::kFunction) {
          AddFunction(head, i, partner_[i]);
          i = partner_[i] + 1;
          head = i;
        } else {
          i = partner_[i] + 1;
        }
      } else {
        i = Next(i, tokens_.size());
      }
    }
    return i;
  }

  static bool IsAccess(std::string_view token) {
    return token == "public" || token == "private" || token == "protected";
  }

  bool HasTopLevel(size_t begin, size_t end, std::string_view wanted) const {
    for (size_t i = begin; i < end; i = Next(i, end)) {
      if (Text(i) == wanted && (i == begin || Text(i - 1) != "operator")) return true;
    }
    return false;
  }

  // What the `{` at `brace` opens, after the declaration that starts at `head`.
  BraceKind Classify(size_t head, size_t brace) const {
    if (head == brace) return BraceKind::kSkipped;
    if (HasTopLevel(head, brace, "namespace")) return BraceKind::kScope;
    if (Text(head) == "extern" && brace == head + 2) return BraceKind::kScope;
    for (std::string_view word : {"enum", "concept", "="}) {
      if (HasTopLevel(head, brace, word)) return BraceKind::kSkipped;
    }
    const std::optional<size_t> list = ParameterList(head, brace);
    if (!list) {
      for (std::string_view word : {"class", "struct", "union"}) {
        if (HasTopLevel(head, brace, word)) return BraceKind::kScope;
      }
      return BraceKind::kSkipped;
    }
    const bool in_initializers = HasTopLevel(partner_[*list], brace, ":");
    const std::string_view before = Text(brace - 1);
    const bool initializes = in_initializers && (IsIdentifier(before) || before == ">");
    return initializes ? BraceKind::kSkipped : BraceKind::kFunction;
  }

  // The `(` of the parameters declared by tokens [begin, end).
  std::optional<size_t> ParameterList(size_t begin, size_t end) const {
    bool after_operator = false;
    for (size_t i = begin; i < end; i = Next(i, end)) {
      if (Text(i) == "=" && !after_operator) return std::nullopt;
      if (Text(i) == "operator") {
        after_operator = true;
        continue;
      }
      if (Text(i) != "(" || i == begin) continue;
      const std::string_view before = Text(i - 1);
      const size_t after = partner_[i] + 1;
      if (after_operator) {
        if (before == "operator") continue;  // the parentheses in the name of operator()
        return i;
      }
      const bool is_pointer = (Text(i + 1) == "*" || Text(i + 1) == "&") && after < end;
      if (is_pointer && Text(after) == "(") return after;
      if (!(IsIdentifier(before) || before == ">") || TakesNoParameters(before)) continue;
      // MACRO(...) in front of a declaration.
      if (IsMacroName(before) && i == begin + 1 && after < end && IsIdentifier(Text(after)))
        continue;
      return i;
    }
    return std::nullopt;
  }

  std::string NameOf(size_t list) const {
    if (Text(list - 1) == ")") {  // (*name)(...) or operator()(...)
      return Text(list - 2) == "(" ? "operator()" : std::string(Text(list - 2));
    }
    return std::string(Text(list - 1));
  }

  // Records the function declared by [head, end), if it is one; its last token is `last`.
  void AddFunction(size_t head, size_t end, size_t last) {
    // A macro alone on its line belongs to no declaration.
    while (head + 1 < end && IsMacroName(Text(head)) && Text(head + 1) != "(") ++head;
    if (head >= end || Text(head) == "using" || Text(head) == "typedef") return;
    const std::optional<size_t> list = ParameterList(head, end);
    if (!list) return;
    // MACRO(a, b); at namespace scope calls, it does not declare.
    if (last == end && *list == head + 1 && IsMacroName(Text(head))) return;
    outline_.functions.push_back(
        {NameOf(*list), tokens_[head].line, tokens_[last].line, Parameters(*list)});
  }

  std::vector<Parameter> Parameters(size_t list) const {
    std::vector<Parameter> parameters;
    const size_t end = partner_[list];
    bool in_default = false;
    for (size_t i = list + 1; i < end;) {
      const size_t next = Next(i, end);
      if (parameters.empty()) parameters.emplace_back();
      if (Text(i) == ",") {
        parameters.emplace_back();
        in_default = false;
      } else {
        if (Text(i) == "=") in_default = true;
        for (size_t k = i; k < next && !in_default; ++k) {
          parameters.back().tokens.push_back(Text(k));
        }
      }
      i = next;
    }
    const bool is_void = parameters.size() == 1 && parameters[0].tokens.size() == 1 &&
                         parameters[0].tokens[0] == "void";
    return is_void ? std::vector<Parameter>() : parameters;
  }

  std::vector<Token> tokens_;
  std::vector<size_t> partner_;  // of an opening bracket: its closing one; kNone elsewhere
  Outline outline_;
};

}  // namespace

Outline OutlineOf(const SourceFile& file) {
  return Outliner(file).Run();
}

}  // namespace quire::testing
