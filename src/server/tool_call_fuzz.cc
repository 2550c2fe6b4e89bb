// Any bytes as a model's text: whole and in pieces it gives the same answer, and a text without
// calls comes out unchanged. The first byte chooses the format and the lengths of the pieces.
#include <cstddef>
#include <cstdint>

#include "server/tool_call_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::server;
  if (size == 0) return 0;
  const auto format = static_cast<ToolCallFormat>(data[0] % 4);
  const size_t stride = 1 + data[0] / 4 % 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at < text.size(); at += stride) pieces.push_back(text.substr(at, stride));

  const Answer whole = ParseToolCalls(format, {text});
  if (ParseToolCalls(format, pieces) != whole) __builtin_trap();
  if (whole.calls.empty() && whole.content != text) __builtin_trap();
  return 0;
}
