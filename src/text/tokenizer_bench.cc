// Encoding and decoding speed, in bytes of text per second.
#include <benchmark/benchmark.h>

#include "text/tokenizer_files.h"
#include "text/tokenizer_testing.h"

namespace quire::text {
namespace {

constexpr uint64_t kSeed = 1;

std::string English(size_t bytes) {
  constexpr std::string_view kSentence =
      "The old man looked at the sea, and said that 1842 had been a year unlike any other. ";
  std::string text;
  while (text.size() < bytes) text += kSentence;
  return text;
}

Tokenizer ByteLevel(const char* pretokenizer) {
  base::CounterRng rng(kSeed, 1, 0);
  return Tokenizer::Create(RandomByteLevelSpec(rng, 2000, pretokenizer)).value();
}

void SetBytes(benchmark::State& state, const std::string& text) {
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}

void Encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  for (auto iteration : state) benchmark::DoNotOptimize(tokenizer.Encode(text));
  SetBytes(state, text);
}

void EncodeByteLevel(benchmark::State& state, const char* pretokenizer) {
  Encode(state, ByteLevel(pretokenizer), English(1 << 20));
}
BENCHMARK_CAPTURE(EncodeByteLevel, gpt2, "gpt-2")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EncodeByteLevel, llama3, "llama-bpe")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(EncodeByteLevel, deepseek, "deepseek-coder")->Unit(benchmark::kMillisecond);

void EncodeByteLevelRun(benchmark::State& state) {
  Encode(state, ByteLevel("llama-bpe"), std::string(100'000, 'a'));
}
BENCHMARK(EncodeByteLevelRun)->Unit(benchmark::kMillisecond);

// The bundled model's tokenizer; run from the repository's root.
void EncodeSentencePiece(benchmark::State& state) {
  const Result<TokenizerFiles> files = LoadTokenizerFiles("models/draft");
  if (!files.ok()) {
    state.SkipWithError(files.error().message.c_str());
    return;
  }
  Encode(state, Tokenizer::Create(files->spec).value(), English(1 << 20));
}
BENCHMARK(EncodeSentencePiece)->Unit(benchmark::kMillisecond);

void Decode(benchmark::State& state) {
  const Tokenizer tokenizer = ByteLevel("llama-bpe");
  const std::string text = English(1 << 20);
  const std::vector<TokenId> ids = tokenizer.Encode(text);
  for (auto iteration : state) benchmark::DoNotOptimize(tokenizer.Decode(ids));
  SetBytes(state, text);
}
BENCHMARK(Decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire::text
