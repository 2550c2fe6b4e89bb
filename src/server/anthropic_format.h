// The answers of /v1/messages, whole and streamed, from the engine's news.
#pragma once

#include <memory>

#include "server/answer_format.h"

namespace quire::server {

// `request` must outlive the format.
std::unique_ptr<AnswerFormat> MakeAnthropicFormat(ResponseHeader header, const ApiRequest& request);

}  // namespace quire::server
