#include "server/responses_request.h"

#include <limits>
#include <string>
#include <utility>

#include "server/field_reader.h"
#include "server/request_json.h"

namespace quire::server {
namespace json = boost::json;
namespace {

// A required string member of the item at `at`.
Result<std::string> ItemString(const json::object& item, std::string_view key,
                               const std::string& at) {
  const json::value* value = FindMember(item, key);
  if (value == nullptr || !value->is_string()) {
    return Fault(fmt::format("{}.{}", at, key), "'{}.{}' must be a string", at, key);
  }
  return std::string(value->get_string());
}

// Text, or a list of parts with text.
Result<std::string> ReadText(const json::value& value, const std::string& at) {
  if (value.is_string()) return std::string(value.get_string());
  if (!value.is_array()) {
    return Fault(at, "'{}' must be a string or a list of text parts, not {}", at, KindName(value));
  }
  std::string text;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const std::string place = fmt::format("{}[{}]", at, i);
    const json::object* part = value.get_array()[i].if_object();
    if (part == nullptr) return Fault(place, "'{}' must be an object", place);
    QUIRE_ASSIGN_OR_RETURN(const std::string type, ItemString(*part, "type", place));
    if (type != "input_text" && type != "output_text" && type != "text") {
      return Fault(place, "'{}' has the type '{}', but only text can be served here", place, type);
    }
    QUIRE_ASSIGN_OR_RETURN(const std::string words, ItemString(*part, "text", place));
    if (i > 0) text += '\n';
    text += words;
  }
  return text;
}

// A call belongs to the assistant's message before it.
Status AddCall(const json::object& item, const std::string& at, json::array& messages) {
  QUIRE_ASSIGN_OR_RETURN(const std::string id, ItemString(item, "call_id", at));
  QUIRE_ASSIGN_OR_RETURN(const std::string name, ItemString(item, "name", at));
  QUIRE_ASSIGN_OR_RETURN(const std::string arguments, ItemString(item, "arguments", at));
  if (messages.empty() || messages.back().as_object()["role"] != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  }
  json::value& calls = messages.back().as_object()["tool_calls"];
  if (calls.is_null()) calls = json::array();
  calls.get_array().push_back(
      {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
  return Ok{};
}

Status AddItem(const json::value& value, const std::string& at, json::array& messages) {
  const json::object* item = value.if_object();
  if (item == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(value));
  const json::value* given = FindMember(*item, "type");
  if (given != nullptr && !given->is_string()) {
    return Fault(at + ".type", "'{}.type' must be a string", at);
  }
  const std::string_view type =
      given == nullptr ? "message" : std::string_view(given->get_string());
  if (type == "reasoning") return Ok{};
  if (type == "function_call") return AddCall(*item, at, messages);
  if (type == "function_call_output") {
    QUIRE_ASSIGN_OR_RETURN(const std::string id, ItemString(*item, "call_id", at));
    const json::value* output = FindMember(*item, "output");
    if (output == nullptr) return Fault(at + ".output", "'{}.output' is missing", at);
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(*output, at + ".output"));
    messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
    return Ok{};
  }
  if (type != "message") {
    return Fault(at, "'{}' has the type '{}', which cannot be served here", at, type);
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string role, ItemString(*item, "role", at));
  const json::value* content = FindMember(*item, "content");
  if (content == nullptr) return Fault(at + ".content", "'{}.content' is missing", at);
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(*content, at + ".content"));
  messages.push_back({{"role", role}, {"content", text}});
  return Ok{};
}

Result<json::array> ReadMessages(const json::object& body, const std::string& instructions) {
  json::array messages;
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  const json::value* input = FindMember(body, "input");
  if (input != nullptr && input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  if (input == nullptr || !input->is_array() || input->get_array().empty()) {
    return Fault("input", "'input' must be a text or a list with at least one item");
  }
  for (size_t i = 0; i < input->get_array().size(); ++i) {
    QUIRE_RETURN_IF_ERROR(AddItem(input->get_array()[i], fmt::format("input[{}]", i), messages));
  }
  return messages;
}

// Functions stand flat here, and one level deeper in a chat.
Result<json::array> ReadTools(const json::value& value) {
  if (!value.is_array()) return Fault("tools", "'tools' must be a list, not {}", KindName(value));
  json::array tools;
  for (const json::value& item : value.get_array()) {
    const std::string at = fmt::format("tools[{}]", tools.size());
    const json::object* tool = item.if_object();
    if (tool == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(item));
    QUIRE_ASSIGN_OR_RETURN(const std::string type, ItemString(*tool, "type", at));
    if (type != "function") {
      return Fault(at + ".type",
                   "'{}.type' must be 'function': tools that run on the server, as "
                   "'{}', are not offered",
                   at, type);
    }
    json::object function;
    for (const std::string_view key : {"name", "description", "parameters"}) {
      if (const json::value* member = FindMember(*tool, key)) function[key] = *member;
    }
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

json::value ReadToolChoice(const json::value& value) {
  const json::object* choice = value.if_object();
  const json::value* name = choice == nullptr ? nullptr : FindMember(*choice, "name");
  if (name == nullptr) return value;  // a word; what is none is told by the chat API
  return {{"type", "function"}, {"function", {{"name", *name}}}};
}

// {"type": "json_schema", "name", "schema"} has another level in a chat.
Result<json::object> ReadTextFormat(const json::value& text) {
  const json::object* object = text.if_object();
  if (object == nullptr) return Fault("text", "'text' must be an object, not {}", KindName(text));
  const json::value* format = FindMember(*object, "format");
  if (format == nullptr) return json::object{{"type", "text"}};
  if (!format->is_object()) {
    return Fault("text.format", "'text.format' must be an object, not {}", KindName(*format));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string type,
                         ItemString(format->get_object(), "type", "text.format"));
  if (type != "json_schema") return json::object{{"type", type}};
  json::object inner = format->get_object();
  inner.erase("type");
  return json::object{{"type", type}, {"json_schema", std::move(inner)}};
}

// What would need answers to be kept.
Status RefuseStored(const json::object& body) {
  for (const std::string_view key : {"previous_response_id", "conversation", "prompt"}) {
    if (FindMember(body, key) == nullptr) continue;
    return Fault(std::string(key),
                 "'{}' cannot be used: this server stores nothing; send the whole "
                 "conversation as 'input'",
                 key);
  }
  const json::value* background = FindMember(body, "background");
  if (background != nullptr && *background != false) {
    return Fault("background", "'background' cannot be used: this server stores no answers");
  }
  return Ok{};
}

}  // namespace

Result<ResponsesRequest> ChatBodyFromResponses(const json::object& body) {
  QUIRE_RETURN_IF_ERROR(RefuseStored(body));
  ResponsesRequest request;
  json::object& chat = request.chat;
  FieldReader reader(body);
  std::string instructions;
  std::optional<int> limit;
  reader.String("instructions", instructions);
  reader.Int("max_output_tokens", limit, {1, std::numeric_limits<int>::max()});
  QUIRE_RETURN_IF_ERROR(reader.status());
  QUIRE_ASSIGN_OR_RETURN(chat["messages"], ReadMessages(body, instructions));
  if (limit) chat["max_completion_tokens"] = *limit;
  for (const std::string_view key :
       {"model", "temperature", "top_p", "stream", "parallel_tool_calls", "user", "seed", "top_k",
        "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop",
        "cache_salt", "kv_policy", "priority", "request_id", "chat_template_kwargs"}) {
    if (const json::value* value = FindMember(body, key)) chat[key] = *value;
  }
  if (const json::value* tools = FindMember(body, "tools")) {
    QUIRE_ASSIGN_OR_RETURN(chat["tools"], ReadTools(*tools));
  }
  if (const json::value* choice = FindMember(body, "tool_choice")) {
    chat["tool_choice"] = ReadToolChoice(*choice);
  }
  if (const json::value* text = FindMember(body, "text")) {
    QUIRE_ASSIGN_OR_RETURN(chat["response_format"], ReadTextFormat(*text));
  }
  request.settings = {{"instructions", nullptr},    {"max_output_tokens", nullptr},
                      {"metadata", json::object()}, {"parallel_tool_calls", true},
                      {"temperature", nullptr},     {"text", {{"format", {{"type", "text"}}}}},
                      {"tool_choice", "auto"},      {"tools", json::array()},
                      {"top_p", nullptr},           {"user", nullptr}};
  for (json::key_value_pair& setting : request.settings) {
    if (const json::value* value = FindMember(body, setting.key())) setting.value() = *value;
  }
  return request;
}

}  // namespace quire::server
