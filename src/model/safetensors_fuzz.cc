// libFuzzer target: any bytes as a safetensors file, and every tensor of it.
#include <cstdint>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::model;
  quire::Result<Safetensors> file =
      Safetensors::Parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file.ok()) return 0;
  uint64_t sum = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    quire::Result<quire::StoredTensor> stored = file->Tensor(name);
    if (!stored.ok()) continue;
    for (size_t i = 0; i < stored->bytes(); ++i) sum += static_cast<uint64_t>(stored->data[i]);
  }
  // Depends on every byte, so that no read is optimised away.
  return sum == ~uint64_t{0} ? -1 : 0;
}
