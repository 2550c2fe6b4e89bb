#include "server/anthropic_request.h"

#include <string>
#include <utility>

#include "server/field_reader.h"
#include "server/request_json.h"

namespace quire::server {
namespace json = boost::json;
namespace {

Result<std::string_view> RequiredString(const json::object& object, std::string_view key,
                                        const std::string& at) {
  const json::value* value = FindMember(object, key);
  if (value == nullptr || !value->is_string()) {
    const std::string place = at.empty() ? std::string(key) : fmt::format("{}.{}", at, key);
    return Fault(place, "'{}' must be a string", place);
  }
  return std::string_view(value->get_string());
}

// A block of a content list: its object and type.
struct Block {
  const json::object* object;
  std::string_view type;
};

Result<Block> ReadBlock(const json::value& value, const std::string& at) {
  const json::object* object = value.if_object();
  if (object == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(value));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type, RequiredString(*object, "type", at));
  return Block{object, type};
}

Error UnknownBlock(const std::string& at, std::string_view type) {
  return Fault(at, "'{}' has the type '{}', which cannot be served here", at, type);
}

// A string or a list of text blocks, joined by newlines.
Result<std::string> ReadText(const json::value& value, const std::string& at) {
  if (value.is_string()) return std::string(value.get_string());
  if (!value.is_array()) {
    return Fault(at, "'{}' must be a string or a list of text blocks, not {}", at, KindName(value));
  }
  std::string text;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const std::string place = fmt::format("{}[{}]", at, i);
    QUIRE_ASSIGN_OR_RETURN(const Block block, ReadBlock(value.get_array()[i], place));
    if (block.type != "text") return UnknownBlock(place, block.type);
    QUIRE_ASSIGN_OR_RETURN(const std::string_view words,
                           RequiredString(*block.object, "text", place));
    if (i > 0) text += '\n';
    text += words;
  }
  return text;
}

// Texts of one message, joined by newlines as they come.
class TextCollector {
 public:
  void Add(std::string_view text) {
    if (any_) text_ += '\n';
    text_ += text;
    any_ = true;
  }
  bool any() const { return any_; }
  std::string Take() {
    any_ = false;
    return std::exchange(text_, {});
  }

 private:
  std::string text_;
  bool any_ = false;
};

// Results of tools become messages of their own, in their place between the texts.
Status AddUserMessage(const json::array& blocks, const std::string& at, json::array& messages) {
  TextCollector text;
  const auto flush = [&] {
    if (text.any()) messages.push_back({{"role", "user"}, {"content", text.Take()}});
  };
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string place = fmt::format("{}.content[{}]", at, i);
    QUIRE_ASSIGN_OR_RETURN(const Block block, ReadBlock(blocks[i], place));
    if (block.type == "text") {
      QUIRE_ASSIGN_OR_RETURN(const std::string_view words,
                             RequiredString(*block.object, "text", place));
      text.Add(words);
    } else if (block.type == "tool_result") {
      QUIRE_ASSIGN_OR_RETURN(const std::string_view id,
                             RequiredString(*block.object, "tool_use_id", place));
      std::string result;
      if (const json::value* content = FindMember(*block.object, "content")) {
        QUIRE_ASSIGN_OR_RETURN(result, ReadText(*content, place + ".content"));
      }
      flush();
      messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", result}});
    } else {
      return UnknownBlock(place, block.type);
    }
  }
  flush();
  return Ok{};
}

Result<json::object> ToolCall(const json::object& block, const std::string& at) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view id, RequiredString(block, "id", at));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, RequiredString(block, "name", at));
  const json::value* input = FindMember(block, "input");
  if (input == nullptr || !input->is_object()) {
    return Fault(at + ".input", "'{}.input' must be an object", at);
  }
  return json::object{
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}};
}

Status AddAssistantMessage(const json::array& blocks, const std::string& at,
                           json::array& messages) {
  TextCollector text;
  json::array calls;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string place = fmt::format("{}.content[{}]", at, i);
    QUIRE_ASSIGN_OR_RETURN(const Block block, ReadBlock(blocks[i], place));
    if (block.type == "text") {
      QUIRE_ASSIGN_OR_RETURN(const std::string_view words,
                             RequiredString(*block.object, "text", place));
      text.Add(words);
    } else if (block.type == "tool_use") {
      QUIRE_ASSIGN_OR_RETURN(json::object call, ToolCall(*block.object, place));
      calls.push_back(std::move(call));
    } else if (block.type != "thinking" && block.type != "redacted_thinking") {
      return UnknownBlock(place, block.type);
    }
  }
  json::object message{{"role", "assistant"}, {"content", text.Take()}};
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages.push_back(std::move(message));
  return Ok{};
}

Status AddMessage(const json::value& value, const std::string& at, json::array& messages) {
  const json::object* message = value.if_object();
  if (message == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(value));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view role, RequiredString(*message, "role", at));
  if (role != "user" && role != "assistant") {
    return Fault(at + ".role", "'{}.role' must be user or assistant, not '{}'", at, role);
  }
  const json::value* content = FindMember(*message, "content");
  if (content != nullptr && content->is_string()) {
    messages.push_back({{"role", role}, {"content", content->get_string()}});
    return Ok{};
  }
  if (content == nullptr || !content->is_array()) {
    return Fault(at + ".content", "'{}.content' must be a string or a list of blocks", at);
  }
  return role == "user" ? AddUserMessage(content->get_array(), at, messages)
                        : AddAssistantMessage(content->get_array(), at, messages);
}

Result<json::array> ReadMessages(const json::object& body) {
  json::array messages;
  if (const json::value* system = FindMember(body, "system")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(*system, "system"));
    if (!text.empty()) messages.push_back({{"role", "system"}, {"content", text}});
  }
  const json::value* given = FindMember(body, "messages");
  if (given == nullptr || !given->is_array() || given->get_array().empty()) {
    return Fault("messages", "'messages' must be a list with at least one message");
  }
  for (size_t i = 0; i < given->get_array().size(); ++i) {
    QUIRE_RETURN_IF_ERROR(
        AddMessage(given->get_array()[i], fmt::format("messages[{}]", i), messages));
  }
  return messages;
}

Result<json::object> ReadTool(const json::value& value, const std::string& at) {
  const json::object* tool = value.if_object();
  if (tool == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(value));
  if (const json::value* type = FindMember(*tool, "type")) {
    if (!type->is_string() || type->get_string() != "custom") {
      return Fault(at + ".type",
                   "'{}.type' must be 'custom': tools that run on the server are "
                   "not offered",
                   at);
    }
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, RequiredString(*tool, "name", at));
  json::object function{{"name", name}};
  if (const json::value* description = FindMember(*tool, "description")) {
    function["description"] = *description;
  }
  const json::value* schema = FindMember(*tool, "input_schema");
  if (schema == nullptr || !schema->is_object()) {
    return Fault(at + ".input_schema", "'{}.input_schema' must be a JSON schema", at);
  }
  function["parameters"] = *schema;
  return json::object{{"type", "function"}, {"function", std::move(function)}};
}

Status ReadTools(const json::value& value, json::object& chat) {
  if (!value.is_array()) {
    return Fault("tools", "'tools' must be a list, not {}", KindName(value));
  }
  json::array tools;
  for (const json::value& item : value.get_array()) {
    QUIRE_ASSIGN_OR_RETURN(json::object tool,
                           ReadTool(item, fmt::format("tools[{}]", tools.size())));
    tools.push_back(std::move(tool));
  }
  chat["tools"] = std::move(tools);
  return Ok{};
}

Status ReadToolChoice(const json::value& value, json::object& chat) {
  const json::object* choice = value.if_object();
  if (choice == nullptr) {
    return Fault("tool_choice", "'tool_choice' must be an object, not {}", KindName(value));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type,
                         RequiredString(*choice, "type", "tool_choice"));
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view name,
                           RequiredString(*choice, "name", "tool_choice"));
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  } else {
    return Fault("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none, not '{}'",
                 type);
  }
  if (const json::value* alone = FindMember(*choice, "disable_parallel_tool_use")) {
    if (!alone->is_bool()) {
      return Fault("tool_choice.disable_parallel_tool_use",
                   "'tool_choice.disable_parallel_tool_use' must be true or false");
    }
    chat["parallel_tool_calls"] = !alone->get_bool();
  }
  return Ok{};
}

}  // namespace

Result<json::object> ChatBodyFromAnthropic(const json::object& body) {
  json::object chat;
  QUIRE_ASSIGN_OR_RETURN(chat["model"], RequiredString(body, "model", ""));
  if (FindMember(body, "max_tokens") == nullptr) {
    return Fault("max_tokens", "'max_tokens' is missing: how many tokens the answer may have");
  }
  QUIRE_ASSIGN_OR_RETURN(chat["messages"], ReadMessages(body));
  for (const std::string_view key : {"max_tokens", "temperature", "top_p", "top_k", "stream"}) {
    if (const json::value* value = FindMember(body, key)) chat[key] = *value;
  }
  if (const json::value* stop = FindMember(body, "stop_sequences")) {
    if (!stop->is_array()) {
      return Fault("stop_sequences", "'stop_sequences' must be a list, not {}", KindName(*stop));
    }
    chat["stop"] = *stop;
  }
  if (const json::value* tools = FindMember(body, "tools")) {
    QUIRE_RETURN_IF_ERROR(ReadTools(*tools, chat));
  }
  if (const json::value* choice = FindMember(body, "tool_choice")) {
    QUIRE_RETURN_IF_ERROR(ReadToolChoice(*choice, chat));
  }
  if (const json::value* metadata = FindMember(body, "metadata")) {
    const json::value* user =
        metadata->is_object() ? FindMember(metadata->get_object(), "user_id") : nullptr;
    if (user != nullptr) chat["user"] = *user;
  }
  return chat;
}

}  // namespace quire::server
