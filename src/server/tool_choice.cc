#include "server/tool_choice.h"

#include <algorithm>
#include <utility>

#include "server/field_reader.h"
#include "server/request_json.h"

namespace quire::server {
namespace json = boost::json;
namespace {

constexpr size_t kToolsMax = 128;

bool IsFunction(const json::object& object) {
  const json::value* type = FindMember(object, "type");
  return type != nullptr && type->is_string() && type->get_string() == "function";
}

Result<Tool> ParseTool(const json::value& value, const std::string& at) {
  const json::object* entry = value.if_object();
  if (entry == nullptr) return Fault(at, "'{}' must be an object, not {}", at, KindName(value));
  if (!IsFunction(*entry)) {
    return Fault(at + ".type", "'{}.type' must be 'function', the only kind of tool", at);
  }
  const std::string place = at + ".function";
  const json::value* function = FindMember(*entry, "function");
  if (function == nullptr || !function->is_object()) {
    return Fault(place, "'{}' must be an object", place);
  }
  const json::object& fields = function->get_object();
  Tool tool;
  const json::value* name = FindMember(fields, "name");
  if (name == nullptr || !name->is_string() || !IsToolName(name->get_string())) {
    return Fault(place + ".name",
                 "'{}.name' must be a string of 1 to {} letters, digits, '_', '-', '.', ':', '/'",
                 place, kToolNameBytesMax);
  }
  tool.name = name->get_string();
  if (const json::value* description = FindMember(fields, "description")) {
    if (!description->is_string()) {
      return Fault(place + ".description", "'{}.description' must be a string, not {}", place,
                   KindName(*description));
    }
    tool.description = description->get_string();
  }
  tool.parameters = {{"type", "object"}, {"properties", json::object()}};
  if (const json::value* parameters = FindMember(fields, "parameters")) {
    if (!parameters->is_object()) {
      return Fault(place + ".parameters", "'{}.parameters' must be a JSON schema, not {}", place,
                   KindName(*parameters));
    }
    if (!parameters->get_object().empty()) tool.parameters = *parameters;
  }
  return tool;
}

bool HasTool(const ToolOptions& options, std::string_view name) {
  return std::any_of(options.tools.begin(), options.tools.end(),
                     [&](const Tool& tool) { return tool.name == name; });
}

Status ReadTools(const json::value& value, ToolOptions& options) {
  if (!value.is_array()) {
    return Fault("tools", "'tools' must be a list, not {}", KindName(value));
  }
  const json::array& list = value.get_array();
  if (list.size() > kToolsMax) {
    return Fault("tools", "'tools' may hold at most {} tools, not {}", kToolsMax, list.size());
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    QUIRE_ASSIGN_OR_RETURN(Tool tool, ParseTool(list[i], at));
    if (HasTool(options, tool.name)) {
      return Fault(at + ".function.name", "two tools are called '{}'", tool.name);
    }
    options.tools.push_back(std::move(tool));
  }
  return Ok{};
}

Result<ToolChoice> ParseChoice(const json::value& value) {
  if (value.is_string()) {
    const std::string_view word = value.get_string();
    if (word == "none") return ToolChoice{ToolChoice::Mode::kNone, ""};
    if (word == "auto") return ToolChoice{ToolChoice::Mode::kAuto, ""};
    if (word == "required") return ToolChoice{ToolChoice::Mode::kRequired, ""};
  } else if (value.is_object() && IsFunction(value.get_object())) {
    const json::value* function = FindMember(value.get_object(), "function");
    const json::value* name = function != nullptr && function->is_object()
                                  ? FindMember(function->get_object(), "name")
                                  : nullptr;
    if (name == nullptr || !name->is_string()) {
      return Fault("tool_choice.function.name", "'tool_choice.function.name' must be a string");
    }
    return ToolChoice{ToolChoice::Mode::kNamed, std::string(name->get_string())};
  }
  return Fault("tool_choice",
               "'tool_choice' must be none, auto, required or {{\"type\": \"function\", "
               "\"function\": {{\"name\": ..}}}}");
}

// Makes "#/.." in a schema that stood alone point to where it stands now.
void MoveReferences(json::value& value, std::string_view root) {
  if (json::array* array = value.if_array()) {
    for (json::value& item : *array) MoveReferences(item, root);
  }
  json::object* object = value.if_object();
  if (object == nullptr) return;
  for (json::key_value_pair& member : *object) {
    json::string* text = member.value().if_string();
    if (member.key() == "$ref" && text != nullptr && text->starts_with('#')) {
      *text = fmt::format("{}{}", root, std::string_view(*text).substr(1));
    } else {
      MoveReferences(member.value(), root);
    }
  }
}

// A name within a JSON pointer (RFC 6901); tools' names have no "~".
std::string PointerTo(std::string_view name) {
  std::string pointer = "#/$defs/";
  for (const char byte : name) pointer += byte == '/' ? "~1" : std::string(1, byte);
  return pointer;
}

// One of the calls that the choice allows; the tools' parameters are added to `definitions`.
json::object CallSchema(ToolCallFormat format, const ToolOptions& options,
                        json::object& definitions) {
  const char* arguments_key = format == ToolCallFormat::kLlama3 ? "parameters" : "arguments";
  json::array calls;
  for (const Tool& tool : options.tools) {
    if (options.choice.mode == ToolChoice::Mode::kNamed && tool.name != options.choice.name) {
      continue;
    }
    const std::string pointer = PointerTo(tool.name);
    json::value parameters = tool.parameters;
    MoveReferences(parameters, pointer);
    definitions[tool.name] = std::move(parameters);
    calls.push_back(json::object{
        {"type", "object"},
        {"properties", {{"name", {{"const", tool.name}}}, {arguments_key, {{"$ref", pointer}}}}},
        {"required", json::array{"name", arguments_key}},
        {"additionalProperties", false}});
  }
  return {{"anyOf", std::move(calls)}};
}

}  // namespace

Result<ToolOptions> ParseToolOptions(const json::object& body) {
  ToolOptions options;
  if (const json::value* tools = FindMember(body, "tools")) {
    QUIRE_RETURN_IF_ERROR(ReadTools(*tools, options));
  }
  if (!options.tools.empty()) options.choice.mode = ToolChoice::Mode::kAuto;
  if (const json::value* choice = FindMember(body, "tool_choice")) {
    QUIRE_ASSIGN_OR_RETURN(options.choice, ParseChoice(*choice));
  }
  const bool forced = options.choice.mode == ToolChoice::Mode::kRequired ||
                      options.choice.mode == ToolChoice::Mode::kNamed;
  if (options.tools.empty() && forced) {
    return Fault("tool_choice", "'tool_choice' asks for a call, but there are no 'tools'");
  }
  if (options.tools.empty()) options.choice.mode = ToolChoice::Mode::kNone;
  if (options.choice.mode == ToolChoice::Mode::kNamed && !HasTool(options, options.choice.name)) {
    return Fault("tool_choice.function.name", "'tool_choice' names '{}', which is not in 'tools'",
                 options.choice.name);
  }
  FieldReader reader(body);
  reader.Bool("parallel_tool_calls", options.parallel);
  QUIRE_RETURN_IF_ERROR(reader.status());
  return options;
}

json::array ToolsForTemplate(const ToolOptions& options) {
  json::array tools;
  if (!options.MayCall()) return tools;
  for (const Tool& tool : options.tools) {
    tools.push_back(json::object{{"type", "function"},
                                 {"function",
                                  {{"name", tool.name},
                                   {"description", tool.description},
                                   {"parameters", tool.parameters}}}});
  }
  return tools;
}

std::optional<ConstrainedToolCall> ConstrainToolCall(ToolCallFormat format,
                                                     const ToolOptions& options) {
  if (options.choice.mode != ToolChoice::Mode::kRequired &&
      options.choice.mode != ToolChoice::Mode::kNamed) {
    return std::nullopt;
  }
  json::object definitions;
  json::object call = CallSchema(format, options, definitions);
  ConstrainedToolCall constrained;
  switch (format) {
    case ToolCallFormat::kHermes:
      constrained.prefix = fmt::format("{}\n", kHermesOpen);
      constrained.suffix = fmt::format("\n{}", kHermesClose);
      break;
    case ToolCallFormat::kLlama3:
      break;
    case ToolCallFormat::kMistral:
      constrained.prefix = kMistralOpen;
      break;
    case ToolCallFormat::kGranite:
      constrained.prefix = kGraniteOpen;
      break;
  }
  if (format == ToolCallFormat::kMistral || format == ToolCallFormat::kGranite) {
    json::object list{{"type", "array"}, {"items", std::move(call)}, {"minItems", 1}};
    if (!options.parallel) list["maxItems"] = 1;
    call = std::move(list);
  }
  constrained.schema = std::move(call);
  constrained.schema["$defs"] = std::move(definitions);
  return constrained;
}

}  // namespace quire::server
