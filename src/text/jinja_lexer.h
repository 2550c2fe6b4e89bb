// Template source to tokens, with white space already removed as Hugging Face renders: the line
// break after a block tag (trim_blocks), the blanks before one on its line (lstrip_blocks), and
// what `-` asks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace quire::text::jinja {

enum class TokenKind : uint8_t {
  kText,
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // of kText, kName, kString (unescaped) and kOperator
  Value number;
};

// Throws Failure with a line. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace quire::text::jinja
