// The parts of tokenizer.json that are sequences of steps; used by tokenizer_json.cc alone.
#pragma once

#include <boost/json.hpp>

#include "base/result.h"
#include "text/json_access.h"
#include "text/tokenizer_spec.h"

namespace quire::text {

// Append to `spec` what a "normalizer", "pre_tokenizer" or "post_processor" object says. null is
// none.
Status AddNormalizer(const boost::json::value& normalizer, TokenizerSpec& spec);
Status AddPretokenizer(const boost::json::value& pretokenizer, TokenizerSpec& spec);
Status AddPostProcessor(const boost::json::value& processor, TokenizerSpec& spec);

// An added token as "added_tokens" and "added_tokens_decoder" write it; its id comes from
// elsewhere.
AddedToken ReadAddedToken(const boost::json::value& object);

}  // namespace quire::text
