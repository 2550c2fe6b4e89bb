// The OpenAI API's answers: completions and chat, whole and streamed.
#pragma once

#include <memory>

#include "server/answer_format.h"

namespace quire::server {

// `request` and `tokenizer` must outlive the format.
std::unique_ptr<AnswerFormat> MakeOpenAiFormat(ResponseHeader header, const ApiRequest& request,
                                               const text::Tokenizer& tokenizer);

// {"error": {"message", "type", "param", "code"}}
boost::json::object FormatError(const Error& error);

// The HTTP status that fits an error.
int HttpStatus(ErrorKind kind);

std::string_view FinishReasonName(sched::FinishReason reason);

}  // namespace quire::server
