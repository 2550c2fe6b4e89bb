#include "server/dialect.h"

#include <utility>

#include "server/anthropic_format.h"
#include "server/anthropic_request.h"
#include "server/anthropic_response.h"
#include "server/field_reader.h"
#include "server/openai_format.h"
#include "server/responses_format.h"
#include "server/responses_request.h"

namespace quire::server {
namespace json = boost::json;
namespace {

Result<const json::object*> ObjectOf(const json::value& body) {
  const json::object* object = body.if_object();
  if (object == nullptr) {
    return MakeError(ErrorKind::kUsage, "the body must be a JSON object, not {}", KindName(body));
  }
  return object;
}

}  // namespace

std::string_view UrlOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCompletions:
      return UrlOf(Endpoint::kCompletions);
    case Dialect::kChatCompletions:
      return UrlOf(Endpoint::kChatCompletions);
    case Dialect::kResponses:
      return "/v1/responses";
    case Dialect::kMessages:
      return "/v1/messages";
  }
  return "";
}

std::string_view IdPrefix(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCompletions:
      return "cmpl-";
    case Dialect::kChatCompletions:
      return "chatcmpl-";
    case Dialect::kResponses:
      return "resp_";
    case Dialect::kMessages:
      return "msg_";
  }
  return "";
}

Result<DialectRequest> ParseRequest(Dialect dialect, const json::value& body,
                                    const sched::SamplingParams& defaults) {
  QUIRE_ASSIGN_OR_RETURN(const json::object* object, ObjectOf(body));
  DialectRequest request;
  if (dialect == Dialect::kCompletions) {
    QUIRE_ASSIGN_OR_RETURN(request.api, ParseApiRequest(Endpoint::kCompletions, body, defaults));
    return request;
  }
  json::object translated;
  if (dialect == Dialect::kResponses) {
    QUIRE_ASSIGN_OR_RETURN(ResponsesRequest responses, ChatBodyFromResponses(*object));
    translated = std::move(responses.chat);
    request.settings = std::move(responses.settings);
  } else if (dialect == Dialect::kMessages) {
    QUIRE_ASSIGN_OR_RETURN(translated, ChatBodyFromAnthropic(*object));
  }
  const json::value chat = dialect == Dialect::kChatCompletions ? body : std::move(translated);
  QUIRE_ASSIGN_OR_RETURN(request.api, ParseApiRequest(Endpoint::kChatCompletions, chat, defaults));
  return request;
}

std::unique_ptr<AnswerFormat> MakeFormat(Dialect dialect, ResponseHeader header,
                                         const DialectRequest& request,
                                         const text::Tokenizer& tokenizer) {
  switch (dialect) {
    case Dialect::kCompletions:
    case Dialect::kChatCompletions:
      return MakeOpenAiFormat(std::move(header), request.api, tokenizer);
    case Dialect::kResponses:
      return MakeResponsesFormat(std::move(header), request.api, request.settings);
    case Dialect::kMessages:
      return MakeAnthropicFormat(std::move(header), request.api);
  }
  return nullptr;
}

HttpResponse ErrorResponse(Dialect dialect, HttpError error) {
  if (dialect != Dialect::kMessages) return ErrorResponse(std::move(error));
  return {.status = error.status,
          .body = json::serialize(FormatAnthropicError(error.status, error.message)),
          .headers = std::move(error.headers)};
}

}  // namespace quire::server
