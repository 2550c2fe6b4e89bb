// libFuzzer target: any bytes as a GGUF file, and all that is read from one.
#include <cstdint>

#include "model/gguf.h"
#include "model/gguf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::model;
  quire::Result<GgufFile> file = GgufFile::Parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file.ok()) return 0;
  for (const GgufEntry& entry : file->entries()) {
    (void)file->GetInt(entry.key);
    (void)file->GetFloat(entry.key);
    (void)file->GetString(entry.key);
    (void)file->GetIntArray(entry.key);
    (void)file->GetFloatArray(entry.key);
    (void)file->GetStringArray(entry.key);
  }
  uint64_t sum = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    quire::Result<quire::StoredTensor> stored = file->Tensor(tensor.name);
    if (!stored.ok()) continue;
    for (size_t i = 0; i < stored->bytes(); ++i) sum += static_cast<uint64_t>(stored->data[i]);
  }
  quire::Result<quire::model::ModelConfig> config = ConfigFromGguf(*file);
  // Depends on every byte, so that no read is optimised away.
  return config.ok() && sum == ~uint64_t{0} ? -1 : 0;
}
