#include "engine/sequence_grammar.h"

#include <algorithm>
#include <string_view>

#include <boost/json.hpp>

#include "text/grammar.h"

namespace quire::engine {
namespace {

using Kind = sched::OutputConstraint::Kind;

// Deeper than any schema that compiles.
constexpr size_t kJsonDepthMax = 200;

Result<text::GrammarPtr> CompileSchemaText(std::string_view schema) {
  boost::system::error_code error;
  const boost::json::value value =
      boost::json::parse(schema, error, {}, {.max_depth = kJsonDepthMax});
  if (error.failed()) {
    return MakeError(ErrorKind::kUsage, "the JSON schema is not JSON: {}.", error.message());
  }
  return text::CompileJsonSchema(value);
}

Result<text::GrammarPtr> Compile(const sched::OutputConstraint& constraint) {
  switch (constraint.kind) {
    case Kind::kJsonSchema:
      return CompileSchemaText(constraint.text);
    case Kind::kJsonObject:
      return text::CompileJsonObject();
    case Kind::kRegex:
      return text::CompileRegex(constraint.text);
    case Kind::kChoice:
      return text::CompileChoice(constraint.choices);
    case Kind::kGbnf:
      return text::CompileGbnf(constraint.text);
  }
  return MakeError(ErrorKind::kUsage, "there is no such kind of constraint.");
}

std::string_view ParamOf(Kind kind) {
  switch (kind) {
    case Kind::kJsonSchema:
      return "json_schema";
    case Kind::kJsonObject:
      return "json_object";
    case Kind::kRegex:
      return "regex";
    case Kind::kChoice:
      return "choice";
    case Kind::kGbnf:
      return "grammar";
  }
  return "";
}

}  // namespace

std::optional<sched::FinishReason> EndByGrammar(text::GrammarMatcher& matcher, TokenId token) {
  if (!matcher.Accept(token)) return sched::FinishReason::kError;
  if (matcher.finished()) return sched::FinishReason::kStop;
  return std::nullopt;
}

Status ValidateConstraint(const sched::Request& request) {
  if (request.sampling.constraint && request.beam_search) {
    return Error{ErrorKind::kUsage,
                 "beam search and a structured output do not go together; use sampling.",
                 "use_beam_search"};
  }
  return Ok{};
}

std::shared_ptr<text::GrammarMasks> GrammarCache::Find(const sched::OutputConstraint& constraint) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(entries_, constraint, &Entry::first);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->second;
}

Result<std::shared_ptr<text::GrammarMasks>> GrammarCache::Get(
    const sched::OutputConstraint& constraint) {
  if (auto known = Find(constraint)) return known;
  auto grammar = Compile(constraint);
  if (!grammar.ok()) {
    return Error{ErrorKind::kUsage, grammar.error().message, std::string(ParamOf(constraint.kind))};
  }
  std::call_once(vocabulary_made_, [&] {
    vocabulary_ =
        text::GrammarVocabulary::Create(tokenizer_, std::max(vocab_size_, tokenizer_.vocab_size()));
  });
  auto masks = std::make_shared<text::GrammarMasks>(std::move(grammar).value(), vocabulary_);
  const std::scoped_lock lock(mutex_);
  entries_.emplace_front(constraint, masks);  // twice, if another thread was as quick: no harm
  if (entries_.size() > kGrammarsMax) entries_.pop_back();
  return masks;
}

}  // namespace quire::engine
