// Pretokenizer: the steps of TokenizerSpec::pretokenizer; cuts a section of text into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

// GPT-2's words, which a ByteLevelStep splits by.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A section of text and the words in it, in order, never empty, never overlapping.
struct Words {
  std::string text;
  std::vector<Regex::Range> ranges;

  std::string_view word(size_t i) const {
    return std::string_view(text).substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }
};

class Pretokenizer {
 public:
  static Result<Pretokenizer> Create(const std::vector<PretokenizerStep>& steps);

  // `section` is well-formed UTF-8 and not empty.
  Words Split(std::string section, SectionPlace place) const;

  class Step;  // one step, ready to run

 private:
  std::vector<std::shared_ptr<const Step>> steps_;
  bool spells_bytes_ = false;  // steps after a ByteLevelStep see bytes spelled in GPT-2's alphabet
};

// How GGUF files name pre-tokenizers (tokenizer.ggml.pre).
struct NamedPretokenizer {
  std::vector<PretokenizerStep> steps;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};
Result<NamedPretokenizer> FindPretokenizer(std::string_view name);

}  // namespace quire::text
