// ModelConfig from the config.json of a Hugging Face directory.
#pragma once

#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"
#include "model/model_config.h"

namespace quire::model {

// Validated. `where` names the document in messages. kUnsupported for what the forward pass does
// not compute, kInvalid for what cannot be.
Result<ModelConfig> ConfigFromHf(const boost::json::object& config, std::string_view where);

}  // namespace quire::model
