// Any bytes as a request's body: reading its messages and tools, and translating it from
// Anthropic's API, ends with a value or an error that names a place.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "server/anthropic_request.h"
#include "server/chat_messages.h"
#include "server/tool_choice.h"

namespace {

using namespace quire;

template <typename T>
void CheckError(const Result<T>& result) {
  if (!result.ok()) QUIRE_CHECK(!result.error().param.empty() && !result.error().message.empty());
}

void ReadChat(const boost::json::object& body) {
  const boost::json::value* messages = body.if_contains("messages");
  if (messages != nullptr && messages->is_array()) {
    CheckError(server::NormalizeMessages(messages->get_array()));
    CheckError(server::NormalizeMessages(
        messages->get_array(), {.null_content = true, .text_arguments = true, .short_ids = true}));
  }
  const Result<server::ToolOptions> options = server::ParseToolOptions(body);
  CheckError(options);
  if (!options.ok()) return;
  for (const auto format : {server::ToolCallFormat::kHermes, server::ToolCallFormat::kMistral}) {
    server::ConstrainToolCall(format, *options);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  boost::json::error_code error;
  const boost::json::value body =
      boost::json::parse({reinterpret_cast<const char*>(data), size}, error);
  if (error || !body.is_object()) return 0;
  ReadChat(body.get_object());
  const Result<boost::json::object> chat = server::ChatBodyFromAnthropic(body.get_object());
  CheckError(chat);
  if (chat.ok()) ReadChat(*chat);
  return 0;
}
