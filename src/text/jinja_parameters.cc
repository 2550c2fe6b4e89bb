#include "text/jinja_parameters.h"

#include <algorithm>

namespace quire::text::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    Fail("{}() takes at most {} arguments, {} were given", function, names.size(),
         arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) Fail("{}() has no parameter '{}'", function, name);
    const auto i = static_cast<size_t>(found - names_.begin());
    if (values_[i] != nullptr) Fail("{}() got the argument '{}' twice", function, name);
    values_[i] = &value;
  }
}

const Value& Parameters::Required(size_t i) const {
  if (!Has(i)) Fail("{}() needs the argument '{}'", function_, names_[i]);
  return *values_[i];
}

const std::string& Parameters::Text(size_t i) const {
  const Value& value = Required(i);
  if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
  if (!value.is(Kind::kString)) {
    Fail("{}(): '{}' must be a string, not {}", function_, names_[i], value.TypeName());
  }
  return value.text();
}

int64_t Parameters::Int(size_t i) const {
  return ToInteger(Required(i), fmt::format("{}(): '{}'", function_, names_[i]));
}

int64_t Parameters::IntOr(size_t i, int64_t fallback) const {
  return Has(i) ? Int(i) : fallback;
}

bool Parameters::IsTrue(size_t i) const {
  return Has(i) && IsTruthy(*values_[i]);
}

int64_t ToInteger(const Value& value, std::string_view what) {
  if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
  if (!value.is_integral()) Fail("{} must be an integer, not {}", what, value.TypeName());
  return value.integer();
}

}  // namespace quire::text::jinja
