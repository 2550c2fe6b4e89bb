// Objects of a JSON schema: properties in the schema's order, required or not, then others.
#include <fmt/format.h>

#include "text/json_schema_compiler.h"

namespace quire::text {

namespace json = boost::json;
using Expr = GrammarBuilder::Expr;

Result<std::set<std::string>> JsonSchemaCompiler::Required(const Object& schema,
                                                           const Place& place) const {
  std::set<std::string> names;
  const json::value* list = schema.if_contains("required");
  if (list == nullptr) return names;
  if (!list->is_array()) return Wrong(place, "\"required\" is not a list of names");
  for (const json::value& name : list->get_array()) {
    if (!name.is_string()) return Wrong(place, "\"required\" is not a list of names");
    names.emplace(name.get_string());
  }
  return names;
}

Result<std::vector<JsonSchemaCompiler::Property>> JsonSchemaCompiler::Properties(
    const Object& schema, const Place& place) {
  QUIRE_ASSIGN_OR_RETURN(std::set<std::string> required, Required(schema, place));
  std::vector<Property> properties;
  const auto add = [&](std::string_view name, const json::value& value,
                       const Place& where) -> Status {
    const bool is_required = required.erase(std::string(name)) > 0;
    // What has no value can only be left out.
    if (value == false && !is_required) return Ok{};
    QUIRE_ASSIGN_OR_RETURN(const Expr schema_expr, Schema(value, where));
    const Expr key = builder_.Literal(json::serialize(json::string_view(name)));
    properties.push_back({.name = std::string(name),
                          .member = builder_.Concatenate({key, json_.Colon(), schema_expr}),
                          .required = is_required});
    return Ok{};
  };
  if (const json::value* named = schema.if_contains("properties")) {
    if (!named->is_object()) return Wrong(place, "\"properties\" is not an object");
    for (const auto& [name, value] : named->get_object()) {
      QUIRE_RETURN_IF_ERROR(add(name, value, place.At("properties").At(name)));
    }
  }
  // Required, yet described by "additionalProperties" alone.
  const json::value* additional = schema.if_contains("additionalProperties");
  const json::value any(true);
  while (!required.empty()) {
    const std::string name = *required.begin();
    if (additional != nullptr && *additional == false) {
      return Wrong(place, fmt::format("the property \"{}\" is required and not allowed", name));
    }
    QUIRE_RETURN_IF_ERROR(
        add(name, additional != nullptr ? *additional : any, place.At("additionalProperties")));
  }
  return properties;
}

Result<Expr> JsonSchemaCompiler::ObjectOf(const Object& schema, const Place& place) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Property> properties, Properties(schema, place));
  const json::value* additional = schema.if_contains("additionalProperties");
  // A schema that names its properties means these, unless it says otherwise.
  const bool open = additional != nullptr ? *additional != false : properties.empty();
  std::optional<Expr> member;
  if (open) {
    std::vector<std::string> names;
    if (const json::value* named = schema.if_contains("properties"); named && named->is_object()) {
      for (const auto& property : named->get_object()) names.emplace_back(property.key());
    }
    for (const Property& property : properties) names.push_back(property.name);
    Expr key = json_.String();
    if (!names.empty()) {
      auto other = json_.StringOtherThan(std::move(names));
      if (!other.ok()) return Unsupported(place, other.error().message);
      key = *other;
    }
    QUIRE_ASSIGN_OR_RETURN(const Expr value,
                           Schema(additional != nullptr ? *additional : json::value(true),
                                  place.At("additionalProperties")));
    member = builder_.Concatenate({key, json_.Colon(), value});
  }
  return json_.Enclosed("{}", Members(properties, member));
}

// Two rules for what follows the first i properties: one where some member has been written, so
// that a comma is due, one where none has. Each calls the next last, which costs no nesting.
Expr JsonSchemaCompiler::Members(const std::vector<Property>& properties,
                                 std::optional<Expr> additional) {
  Expr after = builder_.Empty();
  Expr from_start = builder_.Empty();
  if (additional) {
    after =
        builder_.Times(builder_.Concatenate({json_.Comma(), *additional}), 0, Grammar::kUnbounded);
    from_start = json_.List(*additional, 0, Grammar::kUnbounded);
  }
  const auto as_rule = [&](Expr expr) {
    const GrammarBuilder::RuleId rule = builder_.AddRule();
    builder_.Define(rule, expr);
    return builder_.CallTo(rule);
  };
  for (size_t i = properties.size(); i-- > 0;) {
    const Property& property = properties[i];
    const Expr first = builder_.Concatenate({property.member, after});
    from_start = as_rule(property.required ? first : builder_.Either({first, from_start}));
    const Expr next = builder_.Concatenate({json_.Comma(), property.member});
    after =
        as_rule(builder_.Concatenate({property.required ? next : builder_.Optional(next), after}));
  }
  return from_start;
}

}  // namespace quire::text
