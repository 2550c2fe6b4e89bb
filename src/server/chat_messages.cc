#include "server/chat_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/rng.h"
#include "server/field_reader.h"
#include "server/request_json.h"

namespace quire::server {
namespace json = boost::json;
namespace {

constexpr size_t kShortIdLength = 9;

bool IsLetterOrDigit(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z');
}

// Equal ids stay equal, so that a result still belongs to its call.
std::string ShortId(std::string_view id) {
  if (id.size() == kShortIdLength && std::all_of(id.begin(), id.end(), IsLetterOrDigit)) {
    return std::string(id);
  }
  uint64_t hash = id.size();
  for (const char byte : id) hash = base::Mix64(hash ^ static_cast<unsigned char>(byte));
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string text;
  for (size_t i = 0; i < kShortIdLength; ++i, hash /= kDigits.size()) {
    text += kDigits[hash % kDigits.size()];
  }
  return text;
}

// One conversation's way through the checks: counts bytes over all messages.
class Normalizer {
 public:
  Normalizer(const MessageShape& shape, const MessageLimits& limits)
      : shape_(shape), limits_(limits) {}

  // `at`: the message's place, as "messages[2]".
  Result<json::object> Message(const json::value& value, const std::string& at);

 private:
  Result<std::string> Role(const json::object& message, const std::string& at);
  Result<json::value> Content(const json::value* content, const json::object& message,
                              const std::string& at);
  Result<std::string> Parts(const json::array& parts, const std::string& at);
  Result<json::array> ToolCalls(const json::value& value, const std::string& at);
  Result<json::object> ToolCall(const json::value& value, const std::string& at);
  Result<json::value> CallArguments(const json::value* value, const std::string& at);
  Status Strings(json::object& message, const std::string& at);
  Status Count(size_t bytes);

  const MessageShape& shape_;
  const MessageLimits& limits_;
  size_t bytes_ = 0;
};

Status Normalizer::Count(size_t bytes) {
  bytes_ += bytes;
  if (bytes_ <= limits_.bytes_max) return Ok{};
  return Fault("messages", "the messages have more than {} bytes together; shorten them",
               limits_.bytes_max);
}

Result<json::object> Normalizer::Message(const json::value& value, const std::string& at) {
  const json::object* given = value.if_object();
  if (given == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(value));
  QUIRE_ASSIGN_OR_RETURN(const std::string role, Role(*given, at));
  json::object message{{"role", role}, {"content", nullptr}};
  for (const json::key_value_pair& field : *given) {
    if (!field.value().is_null()) message.insert(field);  // what is set already stays
  }
  if (const json::value* calls = FindMember(message, "tool_calls")) {
    if (role != "assistant") {
      return Fault(at + ".tool_calls", "only an assistant's message has 'tool_calls'; {} is {}'s",
                   at, role);
    }
    QUIRE_ASSIGN_OR_RETURN(json::array checked, ToolCalls(*calls, at + ".tool_calls"));
    if (checked.empty()) {
      message.erase("tool_calls");
    } else {
      message["tool_calls"] = std::move(checked);
    }
  }
  QUIRE_ASSIGN_OR_RETURN(message["content"], Content(FindMember(*given, "content"), message, at));
  QUIRE_RETURN_IF_ERROR(Strings(message, at));
  return message;
}

Result<std::string> Normalizer::Role(const json::object& message, const std::string& at) {
  const json::value* role = FindMember(message, "role");
  if (role == nullptr || !role->is_string()) {
    return Fault(at + ".role", "'{}.role' must be a string", at);
  }
  const std::string_view name = role->get_string();
  if (name == "developer") return std::string("system");
  if (name == "function") return std::string("tool");
  for (const std::string_view known : {"system", "user", "assistant", "tool"}) {
    if (name == known) return std::string(name);
  }
  return Fault(at + ".role",
               "'{}.role' must be system, developer, user, assistant, tool or function, not '{}'",
               at, name);
}

Result<json::value> Normalizer::Content(const json::value* content, const json::object& message,
                                        const std::string& at) {
  const bool calls_tools = message.contains("tool_calls");
  std::string text;
  if (content == nullptr) {
    const bool is_assistant = message.contains("role") && message.at("role") == "assistant";
    if (!is_assistant) {
      return Fault(at + ".content",
                   "'{}.content' is missing; only an assistant's message may leave it out", at);
    }
  } else if (content->is_string()) {
    text = content->get_string();
  } else if (content->is_array()) {
    QUIRE_ASSIGN_OR_RETURN(text, Parts(content->get_array(), at + ".content"));
  } else {
    return Fault(at + ".content", "'{}.content' must be a string or a list of parts, not {}", at,
                 KindName(*content));
  }
  QUIRE_RETURN_IF_ERROR(Count(text.size()));
  if (calls_tools && text.empty() && shape_.null_content) return json::value(nullptr);
  return json::value(json::string(text));
}

Result<std::string> Normalizer::Parts(const json::array& parts, const std::string& at) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", at, i);
    const json::object* part = parts[i].if_object();
    const json::value* type = part ? FindMember(*part, "type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      return Fault(place, "'{}' must be an object with a 'type'", place);
    }
    const std::string_view name = type->get_string();
    if (name != "text" && name != "input_text" && name != "output_text") {
      return Fault(place, "'{}' has the type '{}'; only parts of type 'text' can be served", place,
                   name);
    }
    const json::value* words = FindMember(*part, "text");
    if (words == nullptr || !words->is_string()) {
      return Fault(place, "'{}.text' must be a string", place);
    }
    if (i > 0) text += '\n';
    text += std::string_view(words->get_string());
  }
  return text;
}

Result<json::array> Normalizer::ToolCalls(const json::value& value, const std::string& at) {
  if (!value.is_array()) return Fault(at, "'{}' must be a list, not {}", at, KindName(value));
  json::array calls;
  for (const json::value& item : value.get_array()) {
    QUIRE_ASSIGN_OR_RETURN(json::object call,
                           ToolCall(item, fmt::format("{}[{}]", at, calls.size())));
    calls.push_back(std::move(call));
  }
  return calls;
}

Result<json::object> Normalizer::ToolCall(const json::value& value, const std::string& at) {
  const json::object* given = value.if_object();
  const json::value* function = given ? FindMember(*given, "function") : nullptr;
  if (function == nullptr || !function->is_object()) {
    return Fault(at + ".function", "'{}' must be an object with the object 'function'", at);
  }
  if (const json::value* type = FindMember(*given, "type")) {
    if (!type->is_string() || type->get_string() != "function") {
      return Fault(at + ".type", "'{}.type' must be 'function'", at);
    }
  }
  json::object call;
  if (const json::value* id = FindMember(*given, "id")) {
    if (!id->is_string()) return Fault(at + ".id", "'{}.id' must be a string", at);
    const std::string_view text = id->get_string();
    call["id"] = shape_.short_ids ? ShortId(text) : std::string(text);
  }
  call["type"] = "function";
  const json::value* name = FindMember(function->get_object(), "name");
  if (name == nullptr || !name->is_string() || name->get_string().empty()) {
    return Fault(at + ".function.name", "'{}.function.name' must be a string", at);
  }
  QUIRE_ASSIGN_OR_RETURN(
      json::value arguments,
      CallArguments(FindMember(function->get_object(), "arguments"), at + ".function.arguments"));
  call["function"] = {{"name", name->get_string()}, {"arguments", std::move(arguments)}};
  return call;
}

// Clients send back the text that a response carried; templates mostly want the object in it.
Result<json::value> Normalizer::CallArguments(const json::value* value, const std::string& at) {
  if (value != nullptr && value->is_string()) {
    json::string text = value->get_string();
    QUIRE_RETURN_IF_ERROR(Count(text.size()));
    if (text.empty()) text = "{}";
    json::error_code error;
    json::value parsed = json::parse(text, error);
    if (!shape_.text_arguments && !error && parsed.is_object()) return parsed;
    return json::value(std::move(text));
  }
  if (value != nullptr && !value->is_object()) {
    return Fault(at, "'{}' must be the text of a JSON object, not {}", at, KindName(*value));
  }
  json::value arguments = value == nullptr ? json::value(json::object()) : *value;
  json::string text(json::serialize(arguments));
  QUIRE_RETURN_IF_ERROR(Count(text.size()));
  if (shape_.text_arguments) return json::value(std::move(text));
  return arguments;
}

Status Normalizer::Strings(json::object& message, const std::string& at) {
  for (const std::string_view key : {"name", "tool_call_id"}) {
    json::value* value = message.if_contains(key);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      return Fault(fmt::format("{}.{}", at, key), "'{}.{}' must be a string, not {}", at, key,
                   KindName(*value));
    }
    QUIRE_RETURN_IF_ERROR(Count(value->get_string().size()));
    if (key == "tool_call_id" && shape_.short_ids) *value = ShortId(value->get_string());
  }
  return Ok{};
}

}  // namespace

MessageShape DetectMessageShape(std::string_view chat_template) {
  const auto has = [&](std::string_view words) {
    return chat_template.find(words) != chat_template.npos;
  };
  MessageShape shape;
  shape.null_content =
      has("['content'] is none") || has("[\"content\"] is none") || has("message.content is none");
  shape.text_arguments = has("['arguments'] +") || has("[\"arguments\"] +") ||
                         has(".arguments +") || has("arguments ~ ");
  shape.short_ids = has("id|length != 9") || has("id | length != 9");
  return shape;
}

Result<json::array> NormalizeMessages(const json::array& messages, const MessageShape& shape,
                                      const MessageLimits& limits) {
  if (messages.empty()) return Fault("messages", "'messages' must hold at least one message");
  if (messages.size() > limits.messages_max) {
    return Fault("messages", "'messages' may hold at most {} messages, not {}", limits.messages_max,
                 messages.size());
  }
  Normalizer normalizer(shape, limits);
  json::array normalized;
  for (const json::value& value : messages) {
    QUIRE_ASSIGN_OR_RETURN(
        json::object message,
        normalizer.Message(value, fmt::format("messages[{}]", normalized.size())));
    normalized.push_back(std::move(message));
  }
  return normalized;
}

}  // namespace quire::server
