// Regular expressions as grammar expressions: for CompileRegex, and for strings of a JSON schema,
// whose characters are spelled differently.
#pragma once

#include <functional>
#include <string_view>

#include "text/grammar_builder.h"

namespace quire::text {

// How one character of a set is spelled.
using CharacterSpelling = std::function<GrammarBuilder::Expr(const CharacterSet&)>;

// The texts that match the whole pattern. ^ and $ may stand at the ends of the pattern and of its
// outermost alternatives, where they say nothing new. `.` is any character but a line feed.
Result<GrammarBuilder::Expr> ParseRegex(std::string_view pattern, GrammarBuilder& builder,
                                        const CharacterSpelling& spell);

}  // namespace quire::text
