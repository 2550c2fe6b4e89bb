#include "text/normalizer.h"

#include <algorithm>
#include <optional>

#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include "text/byte_trie.h"
#include "text/charsmap.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace quire::text {

class Normalizer::Step {
 public:
  virtual ~Step() = default;
  virtual std::string Apply(std::string text, SectionPlace place) const = 0;
};

namespace {

using StepPtr = std::shared_ptr<const Normalizer::Step>;

class Prepend : public Normalizer::Step {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string Apply(std::string text, SectionPlace) const override {
    return text.empty() ? text : prefix_ + text;
  }

 private:
  std::string prefix_;
};

class ReplaceLiteral : public Normalizer::Step {
 public:
  explicit ReplaceLiteral(ReplaceStep step) : step_(std::move(step)) {}
  std::string Apply(std::string text, SectionPlace) const override {
    std::string out;
    size_t done = 0;
    for (size_t at = text.find(step_.pattern); at != std::string::npos;
         at = text.find(step_.pattern, done)) {
      out.append(text, done, at - done).append(step_.content);
      done = at + step_.pattern.size();
    }
    if (done == 0) return text;
    return out.append(text, done);
  }

 private:
  ReplaceStep step_;
};

class ReplaceRegex : public Normalizer::Step {
 public:
  ReplaceRegex(Regex regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}
  std::string Apply(std::string text, SectionPlace) const override {
    std::string out;
    size_t done = 0;
    Regex::Matcher matcher(regex_);
    while (const std::optional<Regex::Range> match = matcher.Find(text, done)) {
      out.append(text, done, match->begin - done).append(content_);
      done = match->end;
    }
    return out.append(text, done);
  }

 private:
  Regex regex_;
  std::string content_;
};

class UnicodeNormalize : public Normalizer::Step {
 public:
  explicit UnicodeNormalize(const icu::Normalizer2& form) : form_(form) {}
  std::string Apply(std::string text, SectionPlace) const override {
    // Putting n marks in canonical order takes ICU n^2 steps, so a longer run of marks than any
    // writing has is normalized in stretches.
    std::string out;
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = StretchEnd(text, begin);
      AppendNormalized(std::string_view(text).substr(begin, end - begin), out);
      begin = end;
    }
    return out;
  }

 private:
  static constexpr int kMarksMax = 1024;

  size_t StretchEnd(std::string_view text, size_t begin) const {
    int marks = 0;
    size_t position = begin;
    while (position < text.size()) {
      if (static_cast<uint8_t>(text[position]) < 0x80) {
        marks = 0;
        ++position;
        continue;
      }
      const UChar32 character = static_cast<UChar32>(NextCharacter(text, position));
      marks = form_.getCombiningClass(character) == 0 ? 0 : marks + 1;
      if (marks == kMarksMax) return position;
    }
    return position;
  }

  void AppendNormalized(std::string_view stretch, std::string& out) const {
    UErrorCode error = U_ZERO_ERROR;
    std::string normalized;
    icu::StringByteSink<std::string> sink(&normalized, static_cast<int32_t>(stretch.size()));
    form_.normalizeUTF8(0, icu::StringPiece(stretch.data(), static_cast<int32_t>(stretch.size())),
                        sink, nullptr, error);
    out.append(U_SUCCESS(error) ? std::string_view(normalized) : stretch);
  }

  const icu::Normalizer2& form_;  // ICU's own, lives as long as the process
};

class Strip : public Normalizer::Step {
 public:
  explicit Strip(StripStep step) : step_(step) {}
  std::string Apply(std::string text, SectionPlace) const override {
    size_t begin = 0;
    size_t end = text.size();
    while (step_.left && begin < end) {
      size_t next = begin;
      if (!IsWhiteSpace(NextCharacter(text, next))) break;
      begin = next;
    }
    while (step_.right && end > begin) {
      size_t previous = end;
      if (!IsWhiteSpace(PreviousCharacter(text, previous))) break;
      end = previous;
    }
    return text.substr(begin, end - begin);
  }

 private:
  StripStep step_;
};

// Follows SentencePiece's normalizer: rules of the charsmap, then white space.
class SentencePiece : public Normalizer::Step {
 public:
  SentencePiece(const SentencePieceStep& step, Charsmap map,
                const std::vector<std::string>& protected_pieces)
      : step_(step), map_(std::move(map)) {
    space_ = step.escape_whitespaces ? kMetaspace : std::string_view(" ");
    for (const std::string& piece : protected_pieces) {
      if (!piece.empty()) protected_.Insert(piece, 0);
    }
  }

  std::string Apply(std::string text, SectionPlace place) const override {
    if (step_.charsmap.empty() && !step_.remove_extra_whitespaces) return Escape(text, place);
    std::string out;
    bool after_space = step_.remove_extra_whitespaces;  // at the start, spaces are extra
    for (size_t position = 0; position < text.size();) {
      std::string_view piece = NextPiece(text, position);
      while (after_space && piece.starts_with(' ')) piece.remove_prefix(1);
      if (piece.empty()) continue;
      AppendEscaped(piece, out);
      after_space = step_.remove_extra_whitespaces && piece.ends_with(' ');
    }
    if (step_.remove_extra_whitespaces) {
      while (std::string_view(out).ends_with(space_)) out.resize(out.size() - space_.size());
    }
    return ToValidUtf8(WithDummy(std::move(out), place));
  }

 private:
  std::string Escape(const std::string& text, SectionPlace place) const {
    std::string out;
    out.reserve(text.size() + text.size() / 2 + space_.size());
    AppendEscaped(text, out);
    return WithDummy(std::move(out), place);
  }

  std::string WithDummy(std::string text, SectionPlace place) const {
    const bool wanted =
        step_.dummy_prefix == PrependScheme::kAlways ||
        (step_.dummy_prefix == PrependScheme::kFirst && place == SectionPlace::kFirst);
    if (!wanted || text.empty()) return text;
    if (step_.whitespace_as_suffix) return text.append(space_);
    return text.insert(0, space_);
  }

  void AppendEscaped(std::string_view piece, std::string& out) const {
    for (const char c : piece) {
      if (c == ' ') {
        out.append(space_);
      } else {
        out.push_back(c);
      }
    }
  }

  // What text[position] becomes; moves `position` behind what that stands for.
  std::string_view NextPiece(std::string_view text, size_t& position) const {
    const size_t start = position;
    if (const std::optional<ByteTrie::Match> match = protected_.LongestMatch(text, start)) {
      position += match->length;
      return text.substr(start, match->length);
    }
    if (const std::optional<Charsmap::Replacement> found = map_.Find(text, start)) {
      // A damaged map may end inside a character.
      position += found->length;
      while (position < text.size() && (static_cast<uint8_t>(text[position]) & 0xc0) == 0x80) {
        ++position;
      }
      return found->text;
    }
    position += CharacterLength(text[start]);
    return text.substr(start, position - start);
  }

  SentencePieceStep step_;
  Charsmap map_;
  std::string_view space_;
  ByteTrie protected_;
};

Result<StepPtr> MakeUnicodeStep(UnicodeForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case UnicodeForm::kNfc:
      normalizer = icu::Normalizer2::getNFCInstance(error);
      break;
    case UnicodeForm::kNfd:
      normalizer = icu::Normalizer2::getNFDInstance(error);
      break;
    case UnicodeForm::kNfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(error);
      break;
    case UnicodeForm::kNfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(error);
      break;
  }
  if (U_FAILURE(error) || normalizer == nullptr) {
    return MakeError(ErrorKind::kUnsupported,
                     "the tokenizer asks for Unicode normalization, and the ICU library has no "
                     "data for it; install ICU's data package");
  }
  return StepPtr(std::make_shared<UnicodeNormalize>(*normalizer));
}

struct StepMaker {
  const std::vector<std::string>& protected_pieces;

  Result<StepPtr> operator()(const PrependStep& step) const {
    return StepPtr(std::make_shared<Prepend>(step.prefix));
  }
  Result<StepPtr> operator()(const ReplaceStep& step) const {
    if (step.pattern.empty()) {
      return MakeError(ErrorKind::kInvalid, "a Replace normalizer has an empty pattern");
    }
    if (!step.is_regex) return StepPtr(std::make_shared<ReplaceLiteral>(step));
    QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.pattern));
    return StepPtr(std::make_shared<ReplaceRegex>(std::move(regex), step.content));
  }
  Result<StepPtr> operator()(const UnicodeStep& step) const { return MakeUnicodeStep(step.form); }
  Result<StepPtr> operator()(const StripStep& step) const {
    return StepPtr(std::make_shared<Strip>(step));
  }
  Result<StepPtr> operator()(const SentencePieceStep& step) const {
    QUIRE_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(step.charsmap));
    return StepPtr(std::make_shared<SentencePiece>(step, std::move(map), protected_pieces));
  }
};

// How many times longer a step can make a text; real files stay below 10.
struct Growth {
  size_t operator()(const ReplaceStep& step) const {
    return step.content.size() / (step.is_regex ? 1 : std::max<size_t>(step.pattern.size(), 1)) + 1;
  }
  size_t operator()(const PrependStep& step) const { return step.prefix.size() / 64 + 1; }
  size_t operator()(const auto&) const { return 1; }
};

Status CheckGrowth(const std::vector<NormalizerStep>& steps) {
  constexpr size_t kGrowthMax = 256;
  size_t growth = 1;
  for (const NormalizerStep& step : steps) {
    growth *= std::min(std::visit(Growth{}, step), kGrowthMax + 1);
    if (growth > kGrowthMax) {
      return MakeError(ErrorKind::kUnsupported,
                       "the normalizers can make a text more than {} times longer", kGrowthMax);
    }
  }
  return Ok{};
}

}  // namespace

Result<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps,
                                      const std::vector<std::string>& protected_pieces) {
  Normalizer normalizer;
  QUIRE_RETURN_IF_ERROR(CheckGrowth(steps));
  for (const NormalizerStep& step : steps) {
    QUIRE_ASSIGN_OR_RETURN(StepPtr made, std::visit(StepMaker{protected_pieces}, step));
    normalizer.steps_.push_back(std::move(made));
  }
  return normalizer;
}

std::string Normalizer::Apply(std::string text, SectionPlace place) const {
  for (const auto& step : steps_) text = step->Apply(std::move(text), place);
  return text;
}

}  // namespace quire::text
