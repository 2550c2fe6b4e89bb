// Text from values: Python's % formatting, str.format, and JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_interpreter.h"

namespace quire::text::jinja {

// format % values.
Value FormatPercent(Interpreter& interpreter, std::string_view format, const Value& values);
// format.format(*arguments).
Value FormatBraces(Interpreter& interpreter, std::string_view format, const Arguments& arguments);

enum class NonAscii { kKept, kEscaped };
enum class KeyOrder { kInserted, kSorted };

// What json.dumps takes.
struct JsonStyle {
  NonAscii non_ascii = NonAscii::kKept;
  KeyOrder key_order = KeyOrder::kInserted;
  std::optional<std::string> indent;  // one level's; absent: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void AppendJson(Writer& out, const Value& value, const JsonStyle& style);

}  // namespace quire::text::jinja
