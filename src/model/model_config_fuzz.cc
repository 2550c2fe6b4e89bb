// libFuzzer target: any text as a config.json.
#include <cstdint>
#include <string_view>

#include "model/hf_config.h"
#include "model/json_fields.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::model;
  quire::Result<boost::json::object> object =
      ParseJsonObject({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!object.ok()) return 0;
  quire::Result<ModelConfig> config = ConfigFromHf(*object, "config.json");
  if (config.ok() && !Validate(*config).ok()) __builtin_trap();  // what is read is valid
  return 0;
}
