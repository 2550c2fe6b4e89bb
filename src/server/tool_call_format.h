// How models of a family write a call of a tool into their text, and how a template tells the
// family.
//
// Pure functions; any thread may call them. The parser is tool_call_parser.h, the way to force a
// call tool_choice.h.
#pragma once

#include <optional>
#include <string_view>

namespace quire::server {

enum class ToolCallFormat {
  kHermes,   // <tool_call>{"name": .., "arguments": {..}}</tool_call>: Hermes, Qwen and most others
  kLlama3,   // {"name": .., "parameters": {..}}, several separated by ";", perhaps <|python_tag|>
  kMistral,  // [TOOL_CALLS][{"name": .., "arguments": {..}}, ..] or [TOOL_CALLS]name[ARGS]{..}
  kGranite,  // <|tool_call|>[{"name": .., "arguments": {..}}, ..], or after <tool_call>
};

// The markers of each format, as they stand in the text.
inline constexpr std::string_view kHermesOpen = "<tool_call>";
inline constexpr std::string_view kHermesClose = "</tool_call>";
inline constexpr std::string_view kLlama3Open = "<|python_tag|>";
inline constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
inline constexpr std::string_view kMistralCallId = "[CALL_ID]";
inline constexpr std::string_view kMistralArguments = "[ARGS]";
inline constexpr std::string_view kGraniteOpen = "<|tool_call|>";
inline constexpr std::string_view kToolCallMarkers[] = {
    kHermesOpen,    kHermesClose,      kLlama3Open, kMistralOpen,
    kMistralCallId, kMistralArguments, kGraniteOpen};

// The format that a model with this chat template (Jinja source) writes. Templates that know tools
// but show no format get kHermes, which most models have seen. nullopt: the template has no tools.
std::optional<ToolCallFormat> DetectToolCallFormat(std::string_view chat_template);

inline constexpr size_t kToolNameBytesMax = 128;

// What may stand in a tool's name: ASCII letters, digits and "_-.:/" (OpenAI allows the first four;
// the others serve names with a namespace).
bool IsToolNameByte(char byte);

// Not empty, not too long, of such bytes only.
bool IsToolName(std::string_view name);

}  // namespace quire::server
