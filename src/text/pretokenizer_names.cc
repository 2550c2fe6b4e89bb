// The pre-tokenizers that GGUF files refer to by name, as the models' own tokenizer.json define
// them.
#include <array>

#include "text/pretokenizer.h"

namespace quire::text {
namespace {

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^~|`]+)";

SplitStep Isolated(std::string_view pattern) {
  return {.pattern = std::string(pattern)};
}

using Steps = std::vector<PretokenizerStep>;

Steps Gpt2() {
  return {Isolated(kGpt2Pattern)};
}
Steps Llama3() {
  return {Isolated(kLlama3Pattern)};
}
Steps Qwen2() {
  return {Isolated(kQwen2Pattern)};
}
Steps Tekken() {
  return {Isolated(kTekkenPattern)};
}
Steps Gpt4o() {
  return {Isolated(kGpt4oPattern)};
}
Steps Starcoder() {
  return {Isolated(R"(\p{N})"), Isolated(kGpt2Pattern)};
}
Steps Falcon() {
  return {Isolated(kPunctuation), Isolated(kGpt2Pattern), Isolated("[0-9][0-9][0-9]")};
}
Steps DeepseekCoder() {
  return {Isolated(R"([\r\n])"), Isolated(R"(\s?\p{L}+)"), Isolated(R"(\s?\p{P}+)"),
          Isolated(R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)"),
          Isolated(R"(\p{N})")};
}
// Files without a name were split like this by the programs of their time.
Steps Unnamed() {
  return {Isolated(kPunctuation), Isolated(kGpt2Pattern), Isolated(R"(\p{N}+)"),
          Isolated("[0-9][0-9][0-9]")};
}

struct Named {
  std::string_view name;
  Steps (*steps)();
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr auto kNamed = std::to_array<Named>({
    {"", Unnamed},
    {"default", Unnamed},
    {"gpt-2", Gpt2},
    {"phi-2", Gpt2},
    {"mpt", Gpt2},
    {"olmo", Gpt2},
    {"jais", Gpt2},
    {"gigachat", Gpt2},
    {"roberta-bpe", Gpt2},
    {"llama-bpe", Llama3, true, true},
    {"llama3", Llama3, true, true},
    {"llama-v3", Llama3, true, true},
    {"falcon3", Llama3, true, true},
    {"pixtral", Tekken, true, true},
    {"tekken", Tekken, true, true},
    {"smaug-bpe", Llama3},
    {"dbrx", Llama3},
    {"chatglm-bpe", Llama3},
    {"qwen2", Qwen2},
    {"deepseek-r1-qwen", Qwen2},
    {"stablelm2", Qwen2},
    {"megrez", Qwen2},
    {"gpt-4o", Gpt4o},
    {"starcoder", Starcoder},
    {"refact", Starcoder},
    {"command-r", Starcoder},
    {"smollm", Starcoder},
    {"codeshell", Starcoder},
    {"exaone", Starcoder},
    {"minerva-7b", Starcoder},
    {"falcon", Falcon},
    {"deepseek-coder", DeepseekCoder},
});

}  // namespace

Result<NamedPretokenizer> FindPretokenizer(std::string_view name) {
  for (const Named& named : kNamed) {
    if (named.name != name) continue;
    return NamedPretokenizer{named.steps(), named.ignore_merges, named.add_bos};
  }
  return MakeError(ErrorKind::kUnsupported,
                   "the pre-tokenizer '{}' is not supported; supported are gpt-2, llama-bpe, "
                   "qwen2, deepseek-coder, falcon, starcoder, tekken, gpt-4o, smollm, command-r, "
                   "and files whose tokenizer is a SentencePiece model",
                   name);
}

}  // namespace quire::text
