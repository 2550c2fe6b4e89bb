// Regex: a tokenizer file's regular expression, run by PCRE2 with its just-in-time compiler.
//
// The files mean Oniguruma's dialect. What differs is translated (\s and \S, which in PCRE2 take
// U+180E for a space) or refused (set operations inside a class). Matching is const and
// thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire::text {

class Regex {
 public:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  static Result<Regex> Compile(std::string_view pattern);

  // Scratch memory of one thread's searches.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // The first match in `text`, which is well-formed UTF-8, that starts at `from` or later and is
    // not empty. A search that exceeds PCRE2's limits has found nothing: the rest of such a text
    // stays in one piece.
    std::optional<Range> Find(std::string_view text, size_t from);

   private:
    struct Scratch;
    const Regex& regex_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// The pattern in PCRE2's dialect, or what in it is not supported.
Result<std::string> TranslatePattern(std::string_view pattern);

}  // namespace quire::text
