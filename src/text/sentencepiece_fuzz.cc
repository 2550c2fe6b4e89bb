// libFuzzer: any bytes as tokenizer.model.
#include <cstddef>
#include <cstdint>

#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto spec = quire::text::ParseSentencePieceModel(bytes);
  if (!spec.ok()) return 0;
  const auto tokenizer = quire::text::Tokenizer::Create(std::move(*spec));
  if (!tokenizer.ok()) return 0;
  const auto ids =
      tokenizer->Encode(bytes.substr(0, 200), {.add_special = true, .parse_special = true});
  tokenizer->Decode(ids);
  return 0;
}
