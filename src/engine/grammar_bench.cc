// What a mask costs: generating JSON under a realistic schema over real vocabularies, of 32,000 and
// of 128,256 tokens, from the tests' data.
#include <chrono>
#include <map>
#include <string>

#include <benchmark/benchmark.h>

#include "engine/gguf_tokenizer.h"
#include "model/gguf.h"
#include "testing/shared_data.h"
#include "text/grammar_matcher.h"

namespace quire::engine {
namespace {

using text::GrammarMasks;
using text::GrammarMatcher;
using text::GrammarPtr;
using text::GrammarVocabulary;
using text::Tokenizer;

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "id": {"type": "string", "format": "uuid"},
    "name": {"type": "string", "maxLength": 80},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "email": {"type": "string", "format": "email"},
    "active": {"type": "boolean"},
    "score": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
    "address": {"type": "object",
      "properties": {"street": {"type": "string"}, "city": {"type": "string"},
                     "country": {"enum": ["DE", "FR", "JP", "US"]}},
      "required": ["street", "city"]},
    "notes": {"type": "array", "items": {"type": "object",
      "properties": {"date": {"type": "string", "format": "date"}, "text": {"type": "string"}},
      "required": ["date", "text"]}}},
  "required": ["id", "name", "age", "tags", "address", "notes"]})";

constexpr const char* kText =
    R"({"id": "123e4567-e89b-12d3-a456-426614174000", "name": "Ada Lovelace, Countess", )"
    R"("age": 36, "active": true, "score": 99.5, )"
    R"("tags": ["mathematics", "the analytical engine", "Göttingen"], )"
    R"("address": {"street": "12 St James's Square", "city": "London, the old town", )"
    R"("country": "DE"}, "notes": [{"date": "1843-09-01", )"
    R"("text": "The engine weaves algebraic patterns just as the loom weaves flowers )"
    R"(and leaves; 你好 \"quoted\" and more of the same."}, )"
    R"({"date": "1852-11-27", "text": "She is buried beside her father, as she asked."}]})";

// The time of every mask and step; `fresh`: nothing is known of the grammar, as with a schema's
// first request.
void Generate(benchmark::State& state, const Tokenizer& tokenizer, bool fresh) {
  const auto vocabulary = GrammarVocabulary::Create(tokenizer, tokenizer.vocab_size());
  const GrammarPtr grammar = text::CompileJsonSchema(boost::json::parse(kSchema)).value();
  std::vector<TokenId> tokens = tokenizer.Encode(kText);
  auto masks = std::make_shared<GrammarMasks>(grammar, vocabulary);
  double total = 0;
  double longest = 0;
  int64_t steps = 0;
  for (auto iteration : state) {
    if (fresh) masks = std::make_shared<GrammarMasks>(grammar, vocabulary);
    GrammarMatcher matcher(masks, tokenizer.end_tokens());
    for (const TokenId token : tokens) {
      const auto begin = std::chrono::steady_clock::now();
      const bool allowed = matcher.Allowed().Test(token);
      const bool accepted = matcher.Accept(token);
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - begin;
      // A SentencePiece tokenizer puts a space before the first word.
      if ((!allowed || !accepted) && steps > 0 && token != tokens.front()) {
        state.SkipWithError("the example does not follow the schema");
        return;
      }
      total += time.count();
      longest = std::max(longest, time.count());
      ++steps;
      if (!accepted) matcher.AcceptBytes("{\"");
    }
  }
  state.counters["mean_us"] = total / static_cast<double>(steps);
  state.counters["max_us"] = longest;
  state.counters["tokens"] = static_cast<double>(tokens.size());
}

const Tokenizer* LoadTokenizer(benchmark::State& state, const std::string& name) {
  static std::map<std::string, Tokenizer> loaded;
  if (const auto found = loaded.find(name); found != loaded.end()) return &found->second;
  const auto path = testing::SharedData("tokenizers/" + name);
  if (!path) {
    state.SkipWithError("the vocabulary is absent; set QUIRE_SHARED");
    return nullptr;
  }
  const auto file = model::GgufFile::Open(*path);
  auto tokenizer = file.ok() ? TokenizerFromGguf(*file) : Result<Tokenizer>(file.error());
  if (!tokenizer.ok()) {
    state.SkipWithError(tokenizer.error().message.c_str());
    return nullptr;
  }
  return &loaded.emplace(name, std::move(tokenizer).value()).first->second;
}

void FirstRequestOfASchema(benchmark::State& state, const char* name) {
  if (const Tokenizer* tokenizer = LoadTokenizer(state, name)) Generate(state, *tokenizer, true);
}
BENCHMARK_CAPTURE(FirstRequestOfASchema, tokens_32k, "ggml-vocab-llama-spm.gguf")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(FirstRequestOfASchema, tokens_128k, "ggml-vocab-llama-bpe.gguf")
    ->Unit(benchmark::kMillisecond);

void LaterRequests(benchmark::State& state, const char* name) {
  if (const Tokenizer* tokenizer = LoadTokenizer(state, name)) Generate(state, *tokenizer, false);
}
BENCHMARK_CAPTURE(LaterRequests, tokens_32k, "ggml-vocab-llama-spm.gguf")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(LaterRequests, tokens_128k, "ggml-vocab-llama-bpe.gguf")
    ->Unit(benchmark::kMillisecond);

void CompileSchema(benchmark::State& state) {
  const boost::json::value schema = boost::json::parse(kSchema);
  for (auto iteration : state) benchmark::DoNotOptimize(text::CompileJsonSchema(schema));
}
BENCHMARK(CompileSchema)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::engine
