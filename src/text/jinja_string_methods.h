// Methods of strings; lists' and dicts' are in jinja_methods.cc.
#pragma once

#include <string_view>

#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {

// nullptr where str has no such method.
Builtin FindStringMethod(std::string_view name);

// text.replace(from, to, count); a negative count replaces all.
struct Replacement {
  std::string_view from;
  std::string_view to;
  int64_t count = -1;
};
Value ReplaceText(Interpreter& interpreter, std::string_view text, const Replacement& replacement);

// text.strip(chars) and kin; `chars` may be None.
Value StripText(Interpreter& interpreter, std::string_view text, const Value& chars, Sides sides);

}  // namespace quire::text::jinja
