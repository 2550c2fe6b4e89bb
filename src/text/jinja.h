// The template engine: Jinja as Hugging Face's chat templates use it (trim_blocks, lstrip_blocks,
// loop controls, tojson, raise_exception, strftime_now, {% generation %}).
//
// A Template is immutable: any number of threads may render it at once. No template and no
// arguments can crash, hang or exhaust the process: rendering ends with an error at its limits.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include <boost/json.hpp>

#include "base/result.h"
#include "text/jinja_budget.h"

namespace quire::text::jinja {

struct RenderOptions {
  Limits limits;
  std::optional<std::tm> now;  // what strftime_now formats; absent: the local time
};

// `year`-`month`-`day` at midnight, for RenderOptions::now.
std::tm Date(int year, int month, int day);

class Template {
 public:
  // Errors name the line.
  static Result<Template> Parse(std::string source);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // `args`: the variables of the template. Numbers beyond 64 bits become floats. A template's own
  // raise_exception is an error of kind kInvalid with its message; limits give kExhausted.
  Result<std::string> Render(const boost::json::object& args,
                             const RenderOptions& options = {}) const;

 private:
  struct Parsed;
  explicit Template(std::shared_ptr<const Parsed> parsed);

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace quire::text::jinja
