// Reads the small files of a model (vocabulary, configuration) into memory.
#pragma once

#include <string>

#include "base/result.h"

namespace quire::text {

// kNotFound where there is none, kInvalid above 1 GiB.
Result<std::string> ReadFile(const std::string& path);

}  // namespace quire::text
