// Tokens to the tree of a template: Jinja's grammar without inheritance, includes and autoescape.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace quire::text::jinja {

// Throws Failure with a line. `source` must be valid UTF-8.
Body Parse(std::string_view source);

}  // namespace quire::text::jinja
