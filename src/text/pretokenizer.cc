#include "text/pretokenizer.h"

#include "base/check.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace quire::text {

class Pretokenizer::Step {
 public:
  virtual ~Step() = default;
  virtual void Apply(SectionPlace place, Words& words) const = 0;
};

namespace {

using StepPtr = std::shared_ptr<const Pretokenizer::Step>;

struct Piece {
  Regex::Range range;
  bool is_match = false;
};

// Joins the pieces of one word as `behavior` says and appends the non-empty ones.
void JoinPieces(const std::vector<Piece>& pieces, SplitBehavior behavior,
                std::vector<Regex::Range>& out) {
  const size_t first = out.size();
  bool previous_match = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    bool joins_last = false;
    switch (behavior) {
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kRemoved:
        if (piece.is_match) continue;
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins_last = piece.is_match && !previous_match;
        break;
      case SplitBehavior::kMergedWithNext:
        joins_last = !piece.is_match && previous_match;
        break;
      case SplitBehavior::kContiguous:
        joins_last = piece.is_match == previous_match;
        break;
    }
    previous_match = piece.is_match;
    if (joins_last && out.size() > first) {
      out.back().end = piece.range.end;
    } else {
      out.push_back(piece.range);
    }
  }
}

// Matches and the gaps between them, of one word.
void FindPieces(std::string_view word, size_t offset, Regex::Matcher& matcher,
                std::vector<Piece>& pieces) {
  pieces.clear();
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    if (begin < end) pieces.push_back({{offset + begin, offset + end}, is_match});
  };
  while (done < word.size()) {
    const std::optional<Regex::Range> match = matcher.Find(word, done);
    if (!match) break;
    add(done, match->begin, false);
    add(match->begin, match->end, true);
    done = match->end;
  }
  add(done, word.size(), false);
}

class RegexSplit : public Pretokenizer::Step {
 public:
  RegexSplit(Regex regex, const SplitStep& step)
      : regex_(std::move(regex)), behavior_(step.behavior), invert_(step.invert) {}

  void Apply(SectionPlace, Words& words) const override {
    std::vector<Regex::Range> ranges;
    ranges.reserve(words.text.size() / 4);
    std::vector<Piece> pieces;
    Regex::Matcher matcher(regex_);
    for (size_t i = 0; i < words.ranges.size(); ++i) {
      FindPieces(words.word(i), words.ranges[i].begin, matcher, pieces);
      if (invert_) {
        for (Piece& piece : pieces) piece.is_match = !piece.is_match;
      }
      JoinPieces(pieces, behavior_, ranges);
    }
    words.ranges = std::move(ranges);
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

// Rewrites each word by `rewrite(word, text)`, which appends the new word to text.
template <typename Rewrite>
void RewriteWords(Words& words, Rewrite rewrite) {
  Words rewritten;
  rewritten.text.reserve(words.text.size() + words.text.size() / 2);
  rewritten.ranges.reserve(words.ranges.size());
  for (size_t i = 0; i < words.ranges.size(); ++i) {
    const size_t begin = rewritten.text.size();
    rewrite(words.word(i), rewritten.text);
    if (rewritten.text.size() > begin) rewritten.ranges.push_back({begin, rewritten.text.size()});
  }
  words = std::move(rewritten);
}

class PrefixSpace : public Pretokenizer::Step {
 public:
  void Apply(SectionPlace, Words& words) const override {
    RewriteWords(words, [](std::string_view word, std::string& text) {
      if (!word.starts_with(' ')) text.push_back(' ');
      text.append(word);
    });
  }
};

class SpellBytesStep : public Pretokenizer::Step {
 public:
  void Apply(SectionPlace, Words& words) const override {
    RewriteWords(words, [](std::string_view word, std::string& text) {
      for (const char byte : word) text.append(ByteLetter(static_cast<uint8_t>(byte)));
    });
  }
};

class Metaspace : public Pretokenizer::Step {
 public:
  explicit Metaspace(MetaspaceStep step) : step_(std::move(step)) {}

  void Apply(SectionPlace place, Words& words) const override {
    size_t index = 0;
    RewriteWords(words, [&](std::string_view word, std::string& text) {
      const bool at_start = index++ == 0 && place == SectionPlace::kFirst;
      const bool prepend = step_.prepend == PrependScheme::kAlways ||
                           (step_.prepend == PrependScheme::kFirst && at_start);
      if (prepend && !word.starts_with(' ') && !word.starts_with(step_.replacement)) {
        text.append(step_.replacement);
      }
      for (const char c : word) {
        if (c == ' ') {
          text.append(step_.replacement);
        } else {
          text.push_back(c);
        }
      }
    });
    if (step_.split) SplitBeforeReplacements(words);
  }

 private:
  void SplitBeforeReplacements(Words& words) const {
    std::vector<Regex::Range> ranges;
    for (const Regex::Range& range : words.ranges) {
      size_t begin = range.begin;
      size_t from = begin + 1;
      while (true) {
        const size_t at = words.text.find(step_.replacement, from);
        if (at == std::string::npos || at >= range.end) break;
        ranges.push_back({begin, at});
        begin = at;
        from = at + step_.replacement.size();
      }
      ranges.push_back({begin, range.end});
    }
    words.ranges = std::move(ranges);
  }

  MetaspaceStep step_;
};

// Appends what runs for one step of the spec.
struct StepMaker {
  bool is_last = false;
  std::vector<StepPtr>& steps;

  Status operator()(const SplitStep& step) const {
    QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.pattern));
    steps.push_back(std::make_shared<RegexSplit>(std::move(regex), step));
    return Ok{};
  }

  Status operator()(const PrefixSpaceStep&) const {
    steps.push_back(std::make_shared<PrefixSpace>());
    return Ok{};
  }

  Status operator()(const ByteLevelStep& step) const {
    if (step.add_prefix_space) steps.push_back(std::make_shared<PrefixSpace>());
    if (step.use_regex) {
      SplitStep split{.pattern = std::string(kGpt2Pattern)};
      QUIRE_RETURN_IF_ERROR((*this)(split));
    }
    if (!is_last) steps.push_back(std::make_shared<SpellBytesStep>());
    return Ok{};
  }

  Status operator()(const MetaspaceStep& step) const {
    constexpr size_t kReplacementBytesMax = 64;
    if (step.replacement.empty() || step.replacement.size() > kReplacementBytesMax ||
        !IsValidUtf8(step.replacement)) {
      return MakeError(ErrorKind::kInvalid, "a Metaspace pre-tokenizer has no valid replacement");
    }
    steps.push_back(std::make_shared<Metaspace>(step));
    return Ok{};
  }
};

}  // namespace

Result<Pretokenizer> Pretokenizer::Create(const std::vector<PretokenizerStep>& steps) {
  Pretokenizer pretokenizer;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_last = i + 1 == steps.size();
    if (std::holds_alternative<ByteLevelStep>(steps[i]) && !is_last) {
      if (pretokenizer.spells_bytes_) {
        return MakeError(ErrorKind::kUnsupported, "two ByteLevel pre-tokenizers in one sequence");
      }
      pretokenizer.spells_bytes_ = true;
    }
    QUIRE_RETURN_IF_ERROR(std::visit(StepMaker{is_last, pretokenizer.steps_}, steps[i]));
  }
  return pretokenizer;
}

Words Pretokenizer::Split(std::string section, SectionPlace place) const {
  Words words{.text = std::move(section), .ranges = {}};
  words.ranges.push_back({0, words.text.size()});
  for (const StepPtr& step : steps_) step->Apply(place, words);
  if (spells_bytes_) {
    RewriteWords(words, [](std::string_view word, std::string& text) {
      // Only this class spelled them, but a later step may have put in other characters.
      text.append(ReadByteLetters(word).value_or(std::string(word)));
    });
  }
  return words;
}

}  // namespace quire::text
