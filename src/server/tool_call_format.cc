#include "server/tool_call_format.h"

#include <algorithm>

namespace quire::server {
namespace {

bool IsIdentifierByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

// `tools` as a word of its own: `tool_calls` alone renders a past, it offers nothing.
bool MentionsTools(std::string_view text) {
  constexpr std::string_view kWord = "tools";
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at + 1)) {
    const size_t end = at + kWord.size();
    const bool starts = at == 0 || !IsIdentifierByte(text[at - 1]);
    const bool ends = end == text.size() || !IsIdentifierByte(text[end]);
    if (starts && ends) return true;
  }
  return false;
}

}  // namespace

std::optional<ToolCallFormat> DetectToolCallFormat(std::string_view chat_template) {
  const auto has = [&](std::string_view marker) {
    return chat_template.find(marker) != chat_template.npos;
  };
  if (has(kMistralOpen)) return ToolCallFormat::kMistral;
  if (has(kGraniteOpen)) return ToolCallFormat::kGranite;
  if (has(kHermesOpen)) return ToolCallFormat::kHermes;
  if (!MentionsTools(chat_template)) return std::nullopt;
  if (has("<|start_of_role|>")) return ToolCallFormat::kGranite;
  if (has(kLlama3Open) || has("<|start_header_id|>")) return ToolCallFormat::kLlama3;
  return ToolCallFormat::kHermes;
}

bool IsToolNameByte(char byte) {
  return IsIdentifierByte(byte) || byte == '-' || byte == '.' || byte == ':' || byte == '/';
}

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameBytesMax &&
         std::all_of(name.begin(), name.end(), IsToolNameByte);
}

}  // namespace quire::server
