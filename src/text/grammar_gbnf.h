// GBNF as rules of a GrammarBuilder; CompileGbnf (grammar.h) is this and Build.
#pragma once

#include <string_view>

#include "text/grammar_builder.h"

namespace quire::text {

// Defines rule 0 and all others that the grammar names.
Status ParseGbnf(std::string_view grammar, GrammarBuilder& builder);

}  // namespace quire::text
