// ModelConfig from the metadata of a GGUF file.
#pragma once

#include "base/result.h"
#include "model/gguf.h"
#include "model/model_config.h"

namespace quire::model {

// Validated. kUnsupported for what the forward pass does not compute, kInvalid for what cannot be.
Result<ModelConfig> ConfigFromGguf(const GgufFile& file);

}  // namespace quire::model
