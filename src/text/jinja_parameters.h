// Binds the arguments of a call to a built-in's parameters, as Python would.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace quire::text::jinja {

class Parameters {
 public:
  // Throws where there are too many arguments, unknown names or one given twice.
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  // Each throws where the parameter is missing or of the wrong type.
  const Value& Required(size_t i) const;
  const std::string& Text(size_t i) const;
  int64_t Int(size_t i) const;

  Value Or(size_t i, Value fallback) const { return Has(i) ? *values_[i] : std::move(fallback); }
  int64_t IntOr(size_t i, int64_t fallback) const;
  // Missing is false.
  bool IsTrue(size_t i) const;
  // Missing and None mean absent.
  bool IsSet(size_t i) const { return Has(i) && !values_[i]->is(Kind::kNone); }

 private:
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// `value` as an integer; throws "`what` must be an integer".
int64_t ToInteger(const Value& value, std::string_view what);

}  // namespace quire::text::jinja
