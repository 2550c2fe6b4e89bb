#include "text/grammar_builder.h"

#include <algorithm>

#include "text/grammar_assembler.h"

namespace quire::text {
namespace {

// Expressions and bytes that a builder stores at most; what exceeds this exceeds the automaton's
// limits too.
constexpr size_t kSizeMax = 1 << 20;

}  // namespace

Error GrammarTooLarge() {
  return MakeError(ErrorKind::kExhausted,
                   "the grammar is too large: it needs more than {} states or {} edges.",
                   Grammar::kStatesMax, Grammar::kEdgesMax);
}

GrammarBuilder::GrammarBuilder() : rules_(1) {
  Add(Sequence{}, 0);
}

GrammarBuilder::Expr GrammarBuilder::Add(Node node, size_t weight) {
  size_ += 1 + weight;
  if (size_ > kSizeMax || full_) {
    full_ = true;
    return 0;
  }
  nodes_.push_back(std::move(node));
  weights_.push_back(weight);
  return static_cast<Expr>(nodes_.size() - 1);
}

GrammarBuilder::Expr GrammarBuilder::OneOf(std::vector<std::string> words) {
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  size_t weight = 1;
  for (const std::string& word : words) weight += word.size();
  return Add(Words{std::move(words)}, weight);
}

GrammarBuilder::Expr GrammarBuilder::Characters(const CharacterSet& set) {
  return Add(set, 1 + 2 * set.ranges().size());
}

GrammarBuilder::Expr GrammarBuilder::Concatenate(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts.front();
  size_t weight = parts.size();
  for (const Expr part : parts) weight += weights_[part];
  return Add(Sequence{std::move(parts)}, weight);
}

// Words become one set of words, whose automaton never follows two of them at once.
GrammarBuilder::Expr GrammarBuilder::Either(std::vector<Expr> options) {
  if (options.size() == 1) return options.front();
  std::vector<std::string> words;
  std::vector<Expr> others;
  size_t weight = 1;
  for (const Expr option : options) {
    if (const auto* set = std::get_if<Words>(&nodes_[option])) {
      words.insert(words.end(), set->words.begin(), set->words.end());
    } else {
      others.push_back(option);
      weight += weights_[option];
    }
  }
  if (!words.empty()) {
    const Expr set = OneOf(std::move(words));
    if (others.empty()) return set;
    weight += weights_[set];
    others.push_back(set);
  }
  return Add(Choice{std::move(others)}, weight);
}

GrammarBuilder::Expr GrammarBuilder::Times(Expr part, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return part;
  const Repeat repeat{part, min, max};
  return Add(repeat, 1 + weights_[part] * InlineCopies(repeat, weights_[part]));
}

GrammarBuilder::RuleId GrammarBuilder::AddRule() {
  size_ += 2;
  rules_.emplace_back();
  return static_cast<RuleId>(rules_.size() - 1);
}

Result<GrammarPtr> GrammarBuilder::Build() const {
  if (full_) return GrammarTooLarge();
  return GrammarAssembler(*this).Assemble();
}

}  // namespace quire::text
