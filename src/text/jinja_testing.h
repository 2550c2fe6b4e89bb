// Rendering in tests: the text, or the error's message after "ERROR: ".
#pragma once

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "text/jinja.h"

namespace quire::text::jinja {

inline std::string RenderText(std::string_view source, std::string_view args = "{}",
                              const RenderOptions& options = {}) {
  const Result<Template> parsed = Template::Parse(std::string(source));
  if (!parsed.ok()) return "ERROR: " + parsed.error().message;
  const boost::json::value json = boost::json::parse({args.data(), args.size()});
  const Result<std::string> text = parsed->Render(json.as_object(), options);
  return text.ok() ? *text : "ERROR: " + text.error().message;
}

struct Example {
  const char* source;
  const char* expected;
};

}  // namespace quire::text::jinja
