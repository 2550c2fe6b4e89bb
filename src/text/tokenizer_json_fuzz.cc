// libFuzzer: any bytes as tokenizer.json and as tokenizer_config.json.
#include <cstddef>
#include <cstdint>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  auto config = quire::text::ParseTokenizerConfig(json);
  auto spec = quire::text::ParseTokenizerJson(json);
  if (!spec.ok()) return 0;
  if (config.ok()) quire::text::ApplySpecialTokens(*config, *spec);
  const auto tokenizer = quire::text::Tokenizer::Create(std::move(*spec));
  if (!tokenizer.ok()) return 0;
  // The file's own first bytes are text as good as any.
  const auto ids =
      tokenizer->Encode(json.substr(0, 200), {.add_special = true, .parse_special = true});
  tokenizer->Decode(ids);
  return 0;
}
