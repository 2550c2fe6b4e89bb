// PatternScanner: reads what regular expressions and grammars have in common: characters of UTF-8,
// escapes, classes and counts. One parse; views its text.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/character_set.h"

namespace quire::text {

class PatternScanner {
 public:
  // `text` is well-formed UTF-8. `what` names it in errors: "the pattern".
  PatternScanner(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool done() const { return at_ == text_.size(); }
  size_t position() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  bool Sees(std::string_view token) const { return rest().starts_with(token); }
  bool Skip(std::string_view token);
  void Advance(size_t bytes) { at_ += bytes; }
  char32_t NextCharacter();

  // What follows a backslash that has been read: the characters it stands for.
  Result<CharacterSet> ReadEscape();
  // A class whose opening bracket has been read, with its closing one.
  Result<CharacterSet> ReadClass();

  struct Count {
    uint32_t min = 0;
    uint32_t max = 0;  // Grammar::kUnbounded: no limit
  };
  // *, +, ?, {n}, {n,}, {,m} or {n,m}, if one comes next.
  Result<std::optional<Count>> ReadCount();

  // "<what> is malformed at byte N: <problem>".
  Error Malformed(std::string_view problem) const;
  Error Unsupported(std::string_view feature) const;

 private:
  Result<CharacterSet> ReadHex(size_t digits_min, size_t digits_max);
  Result<std::optional<uint32_t>> ReadNumber();

  std::string_view text_;
  std::string_view what_;
  size_t at_ = 0;
};

// The text of an error about `text`, should it be too long or ill-formed UTF-8.
Status CheckGrammarText(std::string_view text, std::string_view what);

}  // namespace quire::text
