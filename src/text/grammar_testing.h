// For tests of grammars: a naive twin that recognises texts from a builder's expressions, and
// vocabularies to match over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "text/grammar_builder.h"
#include "text/grammar_matcher.h"
#include "text/tokenizer_testing.h"

namespace quire::text {

// Where a text can be after an expression, tried one by one. Not for left-recursive grammars.
class NaiveRecognizer {
 public:
  NaiveRecognizer(const GrammarBuilder& builder, std::string_view text)
      : builder_(builder), text_(text) {}

  bool Matches() { return EndsOfRule(0, 0).contains(text_.size()); }

 private:
  using Ends = std::set<size_t>;

  const Ends& EndsOfRule(uint32_t rule, size_t begin) {
    const auto [found, is_new] = known_.try_emplace({rule, begin});
    if (is_new) found->second = EndsOf(builder_.rules()[rule].value(), begin);
    return found->second;
  }

  Ends EndsOf(GrammarBuilder::Expr expr, size_t begin) {
    const GrammarBuilder::Node& node = builder_.node(expr);
    Ends ends;
    if (const auto* words = std::get_if<GrammarBuilder::Words>(&node)) {
      for (const std::string& word : words->words) {
        if (text_.substr(begin).starts_with(word)) ends.insert(begin + word.size());
      }
    } else if (const auto* set = std::get_if<CharacterSet>(&node)) {
      if (begin < text_.size() && IsValidUtf8(text_.substr(begin))) {
        size_t end = begin;
        if (set->Contains(NextCharacter(text_, end))) ends.insert(end);
      }
    } else if (const auto* sequence = std::get_if<GrammarBuilder::Sequence>(&node)) {
      ends = {begin};
      for (const GrammarBuilder::Expr part : sequence->parts) ends = After(ends, part);
    } else if (const auto* choice = std::get_if<GrammarBuilder::Choice>(&node)) {
      for (const GrammarBuilder::Expr option : choice->options) ends.merge(EndsOf(option, begin));
    } else if (const auto* repeat = std::get_if<GrammarBuilder::Repeat>(&node)) {
      ends = EndsOfRepeat(*repeat, begin);
    } else {
      ends = EndsOfRule(std::get<GrammarBuilder::Call>(node).rule, begin);
    }
    return ends;
  }

  Ends After(const Ends& begins, GrammarBuilder::Expr expr) {
    Ends ends;
    for (const size_t begin : begins) ends.merge(EndsOf(expr, begin));
    return ends;
  }

  Ends EndsOfRepeat(const GrammarBuilder::Repeat& repeat, size_t begin) {
    Ends at = {begin};
    Ends all;
    if (repeat.min == 0) all = at;
    for (uint32_t count = 1; count <= repeat.max && !at.empty(); ++count) {
      at = After(at, repeat.part);
      const size_t before = all.size();
      if (count >= repeat.min) all.insert(at.begin(), at.end());
      const bool nothing_new = count >= repeat.min && all.size() == before;
      if (nothing_new && count > text_.size()) break;
    }
    return all;
  }

  const GrammarBuilder& builder_;
  std::string_view text_;
  std::map<std::pair<uint32_t, size_t>, Ends> known_;
};

// Some texts' tokens, the bytes, and an end token.
inline const Tokenizer& GrammarTestTokenizer() {
  static const Tokenizer tokenizer = [] {
    base::CounterRng rng(7, 0, 0);
    TokenizerSpec spec = RandomByteLevelSpec(rng, 150);
    const TokenId end = *spec.eos;
    for (const char* text :
         {"{\"", "\":",  "\": ",  "\",",  "\", \"",     "\"}",     "},", "}}",   "[{\"",
          "]}",  "true", "false", "null", "00",         "12",      "-1", "name", "\"a\"",
          "0.",  "\\\"", "\\n",   "ab",   "\xe4\xb8",   "\xad\"",  "5}", ", ",   "[[",
          "]]",  "{}",   "[]",    "aaaa", "aaaaaaaaaa", "\": {\"", "\"]"}) {
      const std::string spelled = SpellBytes(text);
      if (std::ranges::find(spec.tokens, spelled) != spec.tokens.end()) continue;
      spec.tokens.push_back(spelled);
      spec.types.push_back(TokenType::kNormal);
    }
    QUIRE_CHECK(spec.eos == end);
    return Tokenizer::Create(std::move(spec)).value();
  }();
  return tokenizer;
}

inline std::shared_ptr<const GrammarVocabulary> GrammarTestVocabulary() {
  static const auto vocabulary =
      GrammarVocabulary::Create(GrammarTestTokenizer(), GrammarTestTokenizer().vocab_size() + 37);
  return vocabulary;
}

inline GrammarMatcher MatcherOf(GrammarPtr grammar) {
  return {std::make_shared<GrammarMasks>(std::move(grammar), GrammarTestVocabulary()),
          {*GrammarTestTokenizer().eos()}};
}

// A grammar that is tried in three ways: byte by byte, token by token with the masks, and by the
// twin. They must agree.
class TriedGrammar {
 public:
  explicit TriedGrammar(const std::function<Status(GrammarBuilder&)>& define) {
    const Status defined = define(builder_);
    EXPECT_TRUE(defined.ok()) << (defined.ok() ? "" : defined.error().message);
    auto grammar = builder_.Build();
    EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().message);
    matcher_.emplace(MatcherOf(std::move(grammar).value()));
  }

  bool Accepts(std::string_view text) const {
    GrammarMatcher bytes = *matcher_;
    const bool by_bytes = bytes.AcceptBytes(text) && bytes.can_end();
    GrammarMatcher tokens = *matcher_;
    bool by_tokens = true;
    for (const TokenId token : GrammarTestTokenizer().Encode(text)) {
      const bool allowed = tokens.Allowed().Test(token);
      EXPECT_EQ(tokens.Accept(token), allowed) << text;
      by_tokens = by_tokens && allowed;
      if (!allowed) break;
    }
    const TokenId end = *GrammarTestTokenizer().eos();
    by_tokens = by_tokens && tokens.Allowed().Test(end);
    EXPECT_EQ(by_bytes, by_tokens) << text;
    EXPECT_EQ(by_bytes, NaiveRecognizer(builder_, text).Matches()) << text;
    return by_bytes;
  }
  const GrammarMatcher& matcher() const { return *matcher_; }

 private:
  GrammarBuilder builder_;
  std::optional<GrammarMatcher> matcher_;
};

}  // namespace quire::text
