// Any bytes as a schema, a pattern and a grammar: compiling ends with a grammar or an error, and
// what compiled can be walked without a dead end.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/grammar_matcher.h"
#include "text/tokenizer_testing.h"

namespace {

using namespace quire;

const text::Tokenizer& Tokenizer() {
  static const text::Tokenizer tokenizer = [] {
    base::CounterRng rng(1, 0, 0);
    return text::Tokenizer::Create(text::RandomByteLevelSpec(rng, 300)).value();
  }();
  return tokenizer;
}

void Walk(text::GrammarPtr grammar, std::string_view choices) {
  static const auto vocabulary =
      text::GrammarVocabulary::Create(Tokenizer(), Tokenizer().vocab_size());
  text::GrammarMatcher matcher(std::make_shared<text::GrammarMasks>(std::move(grammar), vocabulary),
                               Tokenizer().end_tokens());
  for (const char choice : choices.substr(0, 24)) {
    const text::TokenMask& mask = matcher.Allowed();
    TokenId token = static_cast<uint8_t>(choice);
    int tried = 0;
    while (tried < Tokenizer().vocab_size() && !mask.Test(token)) {
      token = (token + 1) % Tokenizer().vocab_size();
      ++tried;
    }
    if (matcher.finished()) return;
    if (tried == Tokenizer().vocab_size()) __builtin_trap();  // every byte is a token
    if (!matcher.Accept(token)) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  boost::system::error_code error;
  Result<text::GrammarPtr> grammar = MakeError(ErrorKind::kInvalid, "no JSON");
  if (data[0] % 3 == 0) {
    const boost::json::value schema = boost::json::parse(input, error);
    if (!error.failed()) grammar = text::CompileJsonSchema(schema);
  } else {
    grammar = data[0] % 3 == 1 ? text::CompileRegex(input) : text::CompileGbnf(input);
  }
  if (grammar.ok()) Walk(std::move(grammar).value(), input);
  return 0;
}
