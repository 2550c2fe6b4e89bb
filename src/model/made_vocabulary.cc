#include "model/made_vocabulary.h"

#include <string>
#include <vector>

#include <fmt/format.h>

namespace quire::model {

namespace {

constexpr int32_t kNormal = 1;  // values of tokenizer.ggml.token_type
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kByte = 6;
constexpr const char* kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// a, b, ..., z, aa, ab, ...: every prefix of a word is a word, so that merging reaches all of them.
std::string Word(int index) {
  std::string word;
  for (int rest = index + 1; rest > 0; rest = (rest - 1) / 26) {
    word.insert(word.begin(), static_cast<char>('a' + (rest - 1) % 26));
  }
  return word;
}

}  // namespace

void WriteMadeVocabulary(int vocab_size, GgufWriter& writer) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {kUnknown, kControl, kControl};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(kByte);
  }
  std::vector<float> scores(tokens.size(), 0.0f);
  auto add = [&](std::string piece) {
    if (static_cast<int>(tokens.size()) >= vocab_size) return;
    scores.push_back(-static_cast<float>(tokens.size()));
    tokens.push_back(std::move(piece));
    types.push_back(kNormal);
  };
  add(kSpace);
  for (int i = 0; static_cast<int>(tokens.size()) < vocab_size; ++i) {
    add(Word(i));
    add(kSpace + Word(i));
  }
  writer.SetText("tokenizer.ggml.model", "llama");
  writer.SetText("tokenizer.ggml.pre", "default");
  writer.SetTexts("tokenizer.ggml.tokens", tokens);
  writer.SetFloats("tokenizer.ggml.scores", scores);
  writer.SetInts("tokenizer.ggml.token_type", types);
  writer.SetInt("tokenizer.ggml.bos_token_id", kMadeBos);
  writer.SetInt("tokenizer.ggml.eos_token_id", kMadeEos);
  writer.SetInt("tokenizer.ggml.unknown_token_id", kMadeUnknown);
  writer.SetTrue("tokenizer.ggml.add_bos_token");
  writer.SetFalse("tokenizer.ggml.add_eos_token");
  writer.SetTrue("tokenizer.ggml.add_space_prefix");
}

}  // namespace quire::model
