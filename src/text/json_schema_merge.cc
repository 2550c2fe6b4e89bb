#include "text/json_schema_merge.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/core.h>

namespace quire::text {
namespace {

namespace json = boost::json;

constexpr std::string_view kAnnotations[] = {
    "title",        "description", "default",  "examples",    "example",          "$schema",
    "$id",          "$comment",    "$defs",    "definitions", "deprecated",       "readOnly",
    "writeOnly",    "$anchor",     "nullable", "$vocabulary", "contentMediaType", "contentEncoding",
    "discriminator"};
constexpr std::string_view kLowerBounds[] = {"minimum", "exclusiveMinimum", "minLength",
                                             "minItems"};
constexpr std::string_view kUpperBounds[] = {"maximum", "exclusiveMaximum", "maxLength",
                                             "maxItems"};

// Of the items of two lists; longer ones are not combined.
constexpr size_t kComparisonsMax = 100'000;

template <size_t n>
bool IsAmong(const std::string_view (&words)[n], std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

json::array ListOf(const json::value& value) {
  return value.is_array() ? value.get_array() : json::array{value};
}

bool Holds(const json::array& list, const json::value& value) {
  return std::ranges::find(list, value) != list.end();
}

json::array Common(const json::array& a, const json::array& b) {
  json::array common;
  for (const json::value& value : a) {
    if (Holds(b, value)) common.push_back(value);
  }
  return common;
}

// Integers are numbers.
json::array CommonTypes(const json::array& a, const json::array& b) {
  json::array common = Common(a, b);
  const bool one_has_all =
      (Holds(a, "number") && Holds(b, "integer")) || (Holds(b, "number") && Holds(a, "integer"));
  if (one_has_all && !Holds(common, "integer") && !Holds(common, "number")) {
    common.emplace_back("integer");
  }
  return common;
}

json::object BothProperties(const json::object& a, const json::object& b) {
  json::object both = a;
  for (const auto& [name, schema] : b) {
    json::value* known = both.if_contains(name);
    if (known == nullptr) {
      both[name] = schema;
    } else if (*known != schema) {
      *known = json::object{{"allOf", json::array{*known, schema}}};
    }
  }
  return both;
}

std::optional<json::value> Combined(std::string_view keyword, const json::value& a,
                                    const json::value& b) {
  if (a == b || IsSchemaAnnotation(keyword)) return a;
  if (keyword == "type") return CommonTypes(ListOf(a), ListOf(b));
  if (keyword == "properties" && a.is_object() && b.is_object()) {
    return BothProperties(a.get_object(), b.get_object());
  }
  if (keyword == "items" || keyword == "additionalProperties") {
    return json::object{{"allOf", json::array{a, b}}};
  }
  if (a.is_array() && b.is_array()) {
    if (a.get_array().size() * b.get_array().size() > kComparisonsMax) return std::nullopt;
    if (keyword == "enum") return Common(a.get_array(), b.get_array());
    if (keyword == "required" || keyword == "allOf") {
      json::array all = a.get_array();
      for (const json::value& item : b.get_array()) {
        if (!Holds(all, item)) all.push_back(item);
      }
      return all;
    }
  }
  if (a.is_number() && b.is_number()) {
    const bool a_is_less = a.to_number<double>() < b.to_number<double>();
    if (IsAmong(kLowerBounds, keyword)) return a_is_less ? b : a;
    if (IsAmong(kUpperBounds, keyword)) return a_is_less ? a : b;
  }
  return std::nullopt;
}

// What one schema says of all properties it does not name would hold for those the other names.
bool ClosesOut(const json::object& closed, const json::object& open) {
  const json::value* additional = closed.if_contains("additionalProperties");
  const json::value* theirs = open.if_contains("properties");
  if (additional == nullptr || *additional == true || theirs == nullptr || !theirs->is_object()) {
    return false;
  }
  const json::value* ours = closed.if_contains("properties");
  return std::ranges::any_of(theirs->get_object(), [&](const auto& property) {
    return ours == nullptr || !ours->is_object() || !ours->get_object().contains(property.key());
  });
}

}  // namespace

bool IsSchemaAnnotation(std::string_view keyword) {
  return IsAmong(kAnnotations, keyword);
}

Result<json::object> MergeSchemas(const json::object& a, const json::object& b) {
  if (ClosesOut(a, b) || ClosesOut(b, a)) {
    return MakeError(ErrorKind::kUnsupported,
                     "\"additionalProperties\" beside properties of another subschema");
  }
  json::object merged = a;
  for (const auto& [name, value] : b) {
    json::value* known = merged.if_contains(name);
    if (known == nullptr) {
      merged[name] = value;
      continue;
    }
    std::optional<json::value> combined = Combined(name, *known, value);
    if (!combined) {
      return MakeError(ErrorKind::kUnsupported, "\"{}\" in several subschemas at a time",
                       std::string_view(name));
    }
    *known = *std::move(combined);
  }
  return merged;
}

}  // namespace quire::text
