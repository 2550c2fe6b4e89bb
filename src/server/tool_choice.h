// The tools a client offers, what it asks of the model with them, and the text that forces a call.
//
// Plain data and pure functions; any thread may use them. Errors are the client's (kUsage); their
// `param` names the place: tools[1].function.name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/result.h"
#include "server/tool_call_format.h"

namespace quire::server {

struct Tool {
  std::string name;
  std::string description;        // empty if the client gave none
  boost::json::value parameters;  // a JSON schema; {"type": "object", "properties": {}} if none
};

struct ToolChoice {
  enum class Mode {
    kNone,      // no call
    kAuto,      // the model decides
    kRequired,  // at least one call
    kNamed,     // a call of `name`
  };
  Mode mode = Mode::kNone;
  std::string name;
};

struct ToolOptions {
  std::vector<Tool> tools;
  ToolChoice choice;     // without tools always kNone
  bool parallel = true;  // one answer may hold several calls

  // Whether the answer may hold calls, so that a ToolCallParser must read it.
  bool MayCall() const { return choice.mode != ToolChoice::Mode::kNone; }
};

// Reads `tools`, `tool_choice` and `parallel_tool_calls` of a chat request's body. At most 128
// tools, with distinct names that IsToolName. Without tool_choice: auto if there are tools.
Result<ToolOptions> ParseToolOptions(const boost::json::object& body);

// The tools as templates expect them: a list of {"type": "function", "function": {"name",
// "description", "parameters"}}, each with all three. Empty where no call may be made.
boost::json::array ToolsForTemplate(const ToolOptions& options);

// What an answer must look like to be a call: `prefix`, one JSON value that obeys `schema`,
// `suffix`. The schema's members stand in the order in which they are to be written. Several calls
// are forced only in formats that write them as one JSON list (Mistral, Granite).
struct ConstrainedToolCall {
  std::string prefix;
  boost::json::object schema;
  std::string suffix;
};

// nullopt where nothing is forced: tool_choice none or auto. References within a tool's parameters
// ("#/$defs/x") are moved along with them: each tool's schema becomes "#/$defs/<name>".
std::optional<ConstrainedToolCall> ConstrainToolCall(ToolCallFormat format,
                                                     const ToolOptions& options);

}  // namespace quire::server
