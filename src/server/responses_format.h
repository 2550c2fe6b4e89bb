// The answers of OpenAI's /v1/responses, whole and as typed events. Source: the public reference of
// the Responses API and its streaming events.
#pragma once

#include <memory>

#include "server/answer_format.h"

namespace quire::server {

// `request` must outlive the format. `settings`: what the answer repeats (ResponsesRequest).
std::unique_ptr<AnswerFormat> MakeResponsesFormat(ResponseHeader header, const ApiRequest& request,
                                                  boost::json::object settings);

}  // namespace quire::server
