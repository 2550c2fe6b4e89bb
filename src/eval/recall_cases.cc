#include "eval/recall_cases.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "base/rng.h"
#include "eval/run_requests.h"

namespace quire::eval {
namespace {

namespace json = boost::json;

std::optional<int> AsId(const json::value& value, int limit) {
  const int64_t* number = value.if_int64();
  if (number == nullptr || *number < 0 || *number >= limit) return std::nullopt;
  return static_cast<int>(*number);
}

// The array under `name`; null where there is none.
const json::array* ArrayAt(const json::value& value, std::string_view name) {
  const json::object* object = value.if_object();
  const json::value* member = object == nullptr ? nullptr : object->if_contains(name);
  return member == nullptr ? nullptr : member->if_array();
}

// What is wrong with a question, or the question.
Result<RecallQuestion> ReadQuestion(const json::value& value, const RecallCase& into,
                                    int vocab_size) {
  const json::array* parts = value.if_array();
  if (parts == nullptr || parts->size() != 3) {
    return Error{ErrorKind::kInvalid, "a question is not [key id, answer id, position]"};
  }
  const std::optional<int> key = AsId((*parts)[0], vocab_size);
  const std::optional<int> answer = AsId((*parts)[1], vocab_size);
  if (!key || !answer) {
    return MakeError(ErrorKind::kInvalid, "a question has a token id outside the vocabulary of {}",
                     vocab_size);
  }
  const int last = static_cast<int>(into.context.size()) - 1;
  const std::optional<int> position = AsId((*parts)[2], std::max(last, 0));
  if (!position || into.context[*position] != *key || into.context[*position + 1] != *answer) {
    return MakeError(ErrorKind::kInvalid,
                     "the context does not have {} {} at the position that a question names", *key,
                     *answer);
  }
  return RecallQuestion{*key, *answer, *position};
}

Result<RecallCase> ReadCase(std::string_view line, int vocab_size) {
  json::error_code code;
  const json::value value = json::parse(line, code);
  if (code) return MakeError(ErrorKind::kInvalid, "it is no JSON ({})", code.message());
  const json::array* context = ArrayAt(value, "context");
  const json::array* questions = ArrayAt(value, "questions");
  if (context == nullptr || questions == nullptr || context->empty() || questions->empty()) {
    return Error{ErrorKind::kInvalid,
                 "it needs \"context\", a list of token ids, and \"questions\", a list"};
  }
  RecallCase result;
  for (const json::value& token : *context) {
    const std::optional<int> id = AsId(token, vocab_size);
    if (!id) {
      return MakeError(ErrorKind::kInvalid,
                       "its context has something that is no token id of the vocabulary of {}",
                       vocab_size);
    }
    result.context.push_back(*id);
  }
  for (const json::value& question : *questions) {
    QUIRE_ASSIGN_OR_RETURN(const RecallQuestion read, ReadQuestion(question, result, vocab_size));
    result.questions.push_back(read);
  }
  return result;
}

// Words of the language as one token: a space and at least four lower-case letters.
bool IsWord(std::string_view bytes) {
  return bytes.size() >= 5 && bytes[0] == ' ' &&
         std::ranges::all_of(bytes.substr(1), [](char c) { return c >= 'a' && c <= 'z'; });
}

struct Material {
  std::vector<TokenId> filler;
  std::vector<TokenId> keys;  // what keys and answers are drawn from
  std::vector<TokenId> answers;
  std::vector<TokenId> prefix;  // BOS, where the tokenizer puts one
  TokenId full_stop = 0;
};

Result<Material> Gather(const text::Tokenizer& tokenizer, std::string_view filler) {
  Material material;
  material.filler = tokenizer.Encode(filler);
  if (const auto bos = BosOf(tokenizer)) material.prefix.push_back(*bos);
  std::optional<TokenId> full_stop;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.Type(id) != text::TokenType::kNormal) continue;
    if (tokenizer.TokenBytes(id) == "." && !full_stop) full_stop = id;
  }
  if (!full_stop) {
    return Error{ErrorKind::kUnsupported, "the model's vocabulary has no token for a full stop"};
  }
  material.full_stop = *full_stop;
  return material;
}

struct Fact {
  TokenId key = 0;
  TokenId answer = 0;
};

// A word of `words` that is not in `taken`, which then has it; nullopt if there is none.
std::optional<TokenId> DrawWord(std::span<const TokenId> words, std::set<TokenId>& taken,
                                base::CounterRng& rng) {
  const size_t start = rng.NextBelow(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    const TokenId word = words[(start + i) % words.size()];
    if (taken.insert(word).second) return word;
  }
  return std::nullopt;
}

// Facts of words that are all different and not in the passage; fewer if there are not so many.
std::vector<Fact> DrawFacts(const Material& material, std::span<const TokenId> passage, int count,
                            base::CounterRng& rng) {
  std::set<TokenId> taken(passage.begin(), passage.end());
  std::vector<Fact> facts;
  for (int i = 0; i < count && !material.keys.empty() && !material.answers.empty(); ++i) {
    const std::optional<TokenId> key = DrawWord(material.keys, taken, rng);
    const std::optional<TokenId> answer = DrawWord(material.answers, taken, rng);
    if (!key || !answer) break;
    facts.push_back({*key, *answer});
  }
  return facts;
}

// The passage with fact i at depth (i + 1/2) / facts.
RecallCase HideFacts(const Material& material, std::span<const TokenId> passage,
                     std::span<const Fact> facts) {
  RecallCase result{.context = material.prefix, .questions = {}};
  std::vector<TokenId>& context = result.context;
  size_t copied = 0;
  for (size_t i = 0; i < facts.size(); ++i) {
    const size_t depth = (2 * i + 1) * passage.size() / (2 * facts.size());
    const auto before = passage.subspan(copied, depth - copied);
    context.insert(context.end(), before.begin(), before.end());
    copied = depth;
    const int position = static_cast<int>(context.size()) + 1;
    result.questions.push_back({facts[i].key, facts[i].answer, position});
    context.insert(context.end(),
                   {material.full_stop, facts[i].key, facts[i].answer, material.full_stop});
  }
  const auto rest = passage.subspan(copied);
  context.insert(context.end(), rest.begin(), rest.end());
  return result;
}

// The words of facts: keys and answers apart, or any word as either.
void GatherWords(const text::Tokenizer& tokenizer, std::span<const RecallCase> like,
                 Material& material) {
  std::set<TokenId> keys, answers;
  for (const RecallCase& one : like) {
    for (const RecallQuestion& question : one.questions) {
      keys.insert(question.key);
      answers.insert(question.answer);
    }
  }
  for (TokenId id = 0; like.empty() && id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.Type(id) == text::TokenType::kNormal && IsWord(tokenizer.TokenBytes(id))) {
      keys.insert(id);
      answers.insert(id);
    }
  }
  material.keys.assign(keys.begin(), keys.end());
  material.answers.assign(answers.begin(), answers.end());
}

}  // namespace

Result<std::vector<RecallCase>> ParseRecallCases(std::string_view text, std::string_view path,
                                                 int vocab_size) {
  std::vector<RecallCase> cases;
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<RecallCase> read = ReadCase(line, vocab_size);
    if (!read.ok()) {
      return MakeError(ErrorKind::kInvalid, "line {} of '{}' is no recall case: {}", number, path,
                       read.error().message);
    }
    cases.push_back(std::move(read).value());
  }
  if (cases.empty()) {
    return MakeError(ErrorKind::kInvalid,
                     "'{}' has no recall cases; it needs a JSON object per line", path);
  }
  return cases;
}

std::string FormatRecallCases(std::span<const RecallCase> cases) {
  std::string text;
  for (const RecallCase& one : cases) {
    json::array questions;
    for (const RecallQuestion& question : one.questions) {
      questions.push_back(json::array{question.key, question.answer, question.position});
    }
    const json::object line = {{"context", json::value_from(one.context)},
                               {"questions", std::move(questions)}};
    text += json::serialize(line) + "\n";
  }
  return text;
}

Result<std::vector<RecallCase>> MakeRecallCases(const text::Tokenizer& tokenizer,
                                                std::string_view filler, const RecallMaker& maker) {
  QUIRE_ASSIGN_OR_RETURN(Material material, Gather(tokenizer, filler));
  GatherWords(tokenizer, maker.like, material);
  std::vector<RecallCase> cases;
  for (const int length : maker.lengths) {
    const int passage_tokens = length - static_cast<int>(material.prefix.size()) - 4 * maker.facts;
    if (passage_tokens < maker.facts) {
      return MakeError(ErrorKind::kUsage, "a context of {} tokens has no room for {} facts", length,
                       maker.facts);
    }
    if (static_cast<size_t>(passage_tokens) > material.filler.size()) {
      return MakeError(ErrorKind::kUsage,
                       "the filler text has {} tokens, but contexts of {} need {}; give a longer "
                       "text or shorter lengths",
                       material.filler.size(), length, passage_tokens);
    }
    for (int i = 0; i < maker.cases; ++i) {
      base::CounterRng rng(maker.seed, static_cast<uint64_t>(length), static_cast<uint64_t>(i));
      const size_t start = rng.NextBelow(material.filler.size() - passage_tokens + 1);
      const auto passage = std::span(material.filler).subspan(start, passage_tokens);
      const auto facts = DrawFacts(material, passage, maker.facts, rng);
      if (facts.size() < static_cast<size_t>(maker.facts)) {
        return MakeError(ErrorKind::kUsage,
                         "the vocabulary has words for {} facts that are not in the passage, fewer "
                         "than the {} of --facts",
                         facts.size(), maker.facts);
      }
      cases.push_back(HideFacts(material, passage, facts));
    }
  }
  return cases;
}

}  // namespace quire::eval
