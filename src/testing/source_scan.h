// A small scanner of our own C++: enough of the grammar to find includes, functions and their
// parameters. Used by the tests over the sources (architecture_test.cc, limits_test.cc).
//
// It sees through comments, string and character literals, raw strings, digit separators,
// templates, constructor initializers and function pointers; it does not expand macros. A file that
// it cannot follow is reported as unbalanced rather than guessed at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::testing {

// `code` has the length and the lines of `text`; comments and the insides of literals are blanks.
struct SourceFile {
  std::string path;  // from the repository's root: "src/kv/block_pool.h"
  std::string text;
  std::string code;

  bool is_header() const { return path.ends_with(".h"); }
  // "kv" of "src/kv/block_pool.h"; empty outside src/.
  std::string folder() const;
};

SourceFile ParseSource(std::string path, std::string text);

// Every .h and .cc file under `root`/src, sorted by path.
std::vector<SourceFile> SourcesUnder(const std::string& root);

struct Include {
  std::string target;  // base/check.h, vector
  int line = 0;
};
std::vector<Include> Includes(const SourceFile& file);

// A token of `code`; views into the file's code. Preprocessor directives yield none, a literal
// yields its quotes.
struct Token {
  std::string_view text;
  int line = 0;
};
std::vector<Token> Tokenize(const SourceFile& file);

struct Parameter {
  std::vector<std::string_view> tokens;  // type and name, without the default value
};

// A function declared or defined at namespace or class scope, or a pointer to one.
struct Function {
  std::string name;
  int first_line = 0;
  int last_line = 0;  // of the body's closing brace, or of the declaration
  std::vector<Parameter> parameters;

  int lines() const { return last_line - first_line + 1; }
};

struct Outline {
  std::vector<Function> functions;
  bool balanced = true;  // every bracket found its partner
};
// The names and tokens inside view into `file`, which must outlive them.
Outline OutlineOf(const SourceFile& file);

}  // namespace quire::testing
