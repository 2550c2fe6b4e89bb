// Any bytes as a template: parsing and rendering end with a text or an error. The arguments are
// those of a conversation, so that what the template reaches is worth reaching.
#include <cstddef>
#include <cstdint>
#include <string>

#include "text/jinja.h"

namespace {

const boost::json::object& Arguments() {
  static const boost::json::object args = boost::json::parse(R"({
    "messages": [{"role": "user", "content": "Hi é 你好"},
                 {"role": "assistant", "content": null, "tool_calls": [
                   {"function": {"name": "f", "arguments": {"a": 1, "b": [1.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {
       "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}],
    "s": "some text, with words\n and lines", "l": [3, 1, 2], "d": {"a": 1, "b": 2}, "i": 7,
    "f": 0.5, "add_generation_prompt": true})")
                                              .as_object();
  return args;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quire::text::jinja::RenderOptions;
  using quire::text::jinja::Template;
  const quire::Result<Template> parsed =
      Template::Parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  RenderOptions options{.limits = {.max_steps = 50'000,
                                   .max_output_bytes = 1 << 20,
                                   .max_memory_bytes = 4 << 20,
                                   .max_depth = 400},
                        .now = quire::text::jinja::Date(2026, 7, 26)};
  const auto text = parsed->Render(Arguments(), options);
  if (text.ok() && text->size() > (1 << 20)) __builtin_trap();
  return 0;
}
