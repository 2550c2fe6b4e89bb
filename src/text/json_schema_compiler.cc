#include "text/json_schema_compiler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "text/grammar_regex.h"
#include "text/json_schema_merge.h"

namespace quire::text {
namespace {

namespace json = boost::json;
using Expr = GrammarBuilder::Expr;

constexpr int kNestingMax = 64;
constexpr size_t kWorkMax = size_t{16} << 20;  // bytes of schema text looked at
constexpr size_t kWorkOfResolution = 1024;
constexpr int kResolutionsMax = 32;

constexpr std::string_view kUnsupportedKeywords[] = {"not",
                                                     "if",
                                                     "then",
                                                     "else",
                                                     "patternProperties",
                                                     "propertyNames",
                                                     "dependencies",
                                                     "dependentRequired",
                                                     "dependentSchemas",
                                                     "minProperties",
                                                     "maxProperties",
                                                     "uniqueItems",
                                                     "multipleOf",
                                                     "contains",
                                                     "minContains",
                                                     "maxContains",
                                                     "additionalItems",
                                                     "unevaluatedItems",
                                                     "unevaluatedProperties",
                                                     "$dynamicRef",
                                                     "$recursiveRef",
                                                     "contentSchema"};

// Without a type, keywords that speak of one kind of value ask for that kind.
constexpr std::pair<std::string_view, std::string_view> kImpliedTypes[] = {
    {"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"},
    {"items", "array"},       {"prefixItems", "array"},       {"minItems", "array"},
    {"maxItems", "array"},    {"pattern", "string"},          {"minLength", "string"},
    {"maxLength", "string"},  {"format", "string"},           {"minimum", "number"},
    {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};

constexpr std::string_view kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
constexpr std::string_view kEmail =
    "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32}){0,3}"
    "@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.){1,4}[A-Za-z]{2,24}";
constexpr std::string_view kIpv4 =
    "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    "(?:\\.(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}";

std::optional<std::string> PatternOfFormat(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (format == "uuid") return std::string(kUuid);
  if (format == "email") return std::string(kEmail);
  if (format == "ipv4") return std::string(kIpv4);
  return std::nullopt;
}

std::string_view TypeName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "integer";
    case json::kind::double_:
      return "number";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      return "object";
  }
  return "null";
}

// Without `keyword` and what says nothing of values.
json::object Others(const json::object& schema, std::string_view keyword) {
  json::object others;
  for (const auto& [name, value] : schema) {
    if (name != keyword && !IsSchemaAnnotation(name)) others[name] = value;
  }
  return others;
}

}  // namespace

JsonSchemaCompiler::Place JsonSchemaCompiler::Place::At(std::string_view key) const {
  Place inner{pointer + "/", nesting + 1};
  for (const char c : key) {
    if (c == '~') {
      inner.pointer += "~0";
    } else if (c == '/') {
      inner.pointer += "~1";
    } else {
      inner.pointer += c;
    }
  }
  return inner;
}

Error JsonSchemaCompiler::Wrong(const Place& place, std::string_view problem) const {
  return MakeError(ErrorKind::kInvalid, "the schema at \"#{}\" is wrong: {}.", place.pointer,
                   problem);
}

Error JsonSchemaCompiler::Unsupported(const Place& place, std::string_view feature) const {
  return MakeError(ErrorKind::kUnsupported, "the schema at \"#{}\" has {}, which is not supported.",
                   place.pointer, feature);
}

Error JsonSchemaCompiler::InPlace(Error error, const Place& place) const {
  error.message = fmt::format("the schema at \"#{}\": {}", place.pointer, error.message);
  return error;
}

Status JsonSchemaCompiler::Compile() {
  if (json::serialize(root_).size() > Grammar::kTextBytesMax) {
    return MakeError(ErrorKind::kExhausted, "the schema has more than {} bytes.",
                     Grammar::kTextBytesMax);
  }
  QUIRE_ASSIGN_OR_RETURN(const Expr root, Schema(root_, {}));
  builder_.Define(0, root);
  return Ok{};
}

Result<Expr> JsonSchemaCompiler::Schema(const json::value& schema, const Place& place) {
  if (schema == true) return json_.Value();
  if (schema == false) return Wrong(place, "false allows no value");
  const json::object* object = schema.if_object();
  if (object == nullptr) return Wrong(place, "a schema is an object, true or false");
  if (place.nesting > kNestingMax) return Unsupported(place, "more than 64 levels of nesting");
  std::string text = json::serialize(schema);
  work_ += text.size();
  if (work_ > kWorkMax || builder_.full()) return GrammarTooLarge();
  const auto [found, is_new] = rules_.try_emplace(std::move(text), 0);
  if (!is_new) return builder_.CallTo(found->second);
  const GrammarBuilder::RuleId rule = builder_.AddRule();
  found->second = rule;
  QUIRE_ASSIGN_OR_RETURN(const Expr body, Body(*object, place));
  builder_.Define(rule, body);
  return builder_.CallTo(rule);
}

Result<Expr> JsonSchemaCompiler::Body(const json::object& schema, const Place& place) {
  QUIRE_RETURN_IF_ERROR(CheckKeywords(schema, place));
  if (const json::value* reference = schema.if_contains("$ref")) {
    if (Others(schema, "$ref").empty()) {
      QUIRE_ASSIGN_OR_RETURN(const json::value* target, Target(*reference, place));
      return Schema(*target, {std::string(reference->as_string()).substr(1), place.nesting + 1});
    }
  }
  if (schema.contains("$ref") || schema.contains("allOf")) {
    QUIRE_ASSIGN_OR_RETURN(const json::object resolved, Resolved(schema, place));
    return Schema(resolved, {place.pointer, place.nesting + 1});
  }
  if (schema.contains("anyOf")) return Alternatives(schema, "anyOf", place);
  if (schema.contains("oneOf")) return Alternatives(schema, "oneOf", place);
  if (schema.contains("enum") || schema.contains("const")) return Values(schema, place);
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> types, Types(schema, place));
  if (types.empty()) return json_.Value();
  std::vector<Expr> options;
  for (const std::string& type : types) {
    QUIRE_ASSIGN_OR_RETURN(const Expr option, OfType(type, schema, place));
    options.push_back(option);
  }
  return builder_.Either(std::move(options));
}

Status JsonSchemaCompiler::CheckKeywords(const json::object& schema, const Place& place) const {
  for (const auto& [name, value] : schema) {
    if (std::ranges::find(kUnsupportedKeywords, std::string_view(name)) ==
        std::end(kUnsupportedKeywords)) {
      continue;
    }
    // What demands nothing is no obstacle.
    if (value == false && name == "uniqueItems") continue;
    if (value.is_number() && value.to_number<double>() == 0 && name == "minProperties") continue;
    return Unsupported(place, fmt::format("the keyword \"{}\"", std::string_view(name)));
  }
  return Ok{};
}

Result<const json::value*> JsonSchemaCompiler::Target(const json::value& reference,
                                                      const Place& place) const {
  const json::string* text = reference.if_string();
  if (text == nullptr) return Wrong(place, "\"$ref\" is not a string");
  const std::string_view pointer = *text;
  if (pointer != "#" && !pointer.starts_with("#/")) {
    return Unsupported(place,
                       fmt::format("a \"$ref\" to another document or an anchor ({})", pointer));
  }
  boost::system::error_code error;
  const json::value* target = root_.find_pointer(pointer.substr(1), error);
  if (target == nullptr) return Wrong(place, fmt::format("\"$ref\" {} leads nowhere", pointer));
  return target;
}

Result<json::object> JsonSchemaCompiler::Resolved(const json::value& schema, const Place& place) {
  if (schema == true) return json::object();
  if (!schema.is_object()) return Wrong(place, "no subschema that can be combined with others");
  if (place.nesting > kResolutionsMax) {
    return Unsupported(place, "more than 32 levels of \"$ref\" and \"allOf\"");
  }
  json::object merged = Others(schema.get_object(), "");
  QUIRE_RETURN_IF_ERROR(CheckKeywords(merged, place));
  work_ += kWorkOfResolution + json::serialize(merged).size();
  if (work_ > kWorkMax) return GrammarTooLarge();
  std::vector<json::value> parts;
  if (const json::value* reference = merged.if_contains("$ref")) {
    QUIRE_ASSIGN_OR_RETURN(const json::value* target, Target(*reference, place));
    parts.push_back(*target);
    merged.erase("$ref");
  }
  if (const json::value* all = merged.if_contains("allOf")) {
    if (!all->is_array()) return Wrong(place, "\"allOf\" is not a list");
    parts.insert(parts.end(), all->get_array().begin(), all->get_array().end());
    merged.erase("allOf");
  }
  for (const json::value& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(const json::object resolved,
                           Resolved(part, {place.pointer, place.nesting + 1}));
    auto both = MergeSchemas(merged, resolved);
    if (!both.ok()) return Unsupported(place, both.error().message);
    merged = std::move(both).value();
  }
  return merged;
}

Result<Expr> JsonSchemaCompiler::Alternatives(const json::object& schema, std::string_view keyword,
                                              const Place& place) {
  const json::array* list = schema.at(keyword).if_array();
  if (list == nullptr || list->empty()) {
    return Wrong(place, fmt::format("\"{}\" is not a list of schemas", keyword));
  }
  const json::object others = Others(schema, keyword);
  std::vector<Expr> options;
  for (size_t i = 0; i < list->size(); ++i) {
    const Place inner = place.At(keyword).At(std::to_string(i));
    json::value option = (*list)[i];
    if (option == false) continue;
    if (!others.empty()) {
      QUIRE_ASSIGN_OR_RETURN(const json::object resolved, Resolved(option, inner));
      auto merged = MergeSchemas(resolved, others);
      if (!merged.ok()) return Unsupported(inner, merged.error().message);
      option = std::move(merged).value();
    }
    QUIRE_ASSIGN_OR_RETURN(const Expr expr, Schema(option, inner));
    options.push_back(expr);
  }
  if (options.empty()) return Wrong(place, fmt::format("\"{}\" allows no value", keyword));
  return builder_.Either(std::move(options));
}

Result<Expr> JsonSchemaCompiler::Values(const json::object& schema, const Place& place) {
  json::array values;
  if (const json::value* list = schema.if_contains("enum")) {
    if (!list->is_array()) return Wrong(place, "\"enum\" is not a list");
    values = list->get_array();
  } else {
    values.push_back(schema.at("const"));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> types, Types(schema, place));
  std::vector<std::string> texts;
  for (const auto& [name, value] : schema) {
    const bool known =
        name == "enum" || name == "const" || name == "type" || IsSchemaAnnotation(name);
    if (!known) {
      return Unsupported(place, fmt::format("\"{}\" beside fixed values", std::string_view(name)));
    }
  }
  for (const json::value& value : values) {
    const std::string_view type = TypeName(value);
    const bool has_type = schema.contains("type");
    const auto is_named = [&](std::string_view name) {
      return std::ranges::find(types, name) != types.end();
    };
    if (has_type && !is_named(type) && !(type == "integer" && is_named("number"))) continue;
    if (schema.contains("const") && value != schema.at("const")) continue;
    texts.push_back(CompactJson(value));
  }
  if (texts.empty()) return Wrong(place, "no value satisfies \"enum\", \"const\" and \"type\"");
  return builder_.OneOf(std::move(texts));
}

Result<std::vector<std::string>> JsonSchemaCompiler::Types(const json::object& schema,
                                                           const Place& place) const {
  std::vector<std::string> types;
  const json::value* type = schema.if_contains("type");
  if (type == nullptr) {
    for (const auto& [keyword, implied] : kImpliedTypes) {
      const bool is_new = std::ranges::find(types, implied) == types.end();
      if (schema.contains(keyword) && is_new) types.emplace_back(implied);
    }
    return types;
  }
  const json::array names = type->is_array() ? type->get_array() : json::array{*type};
  for (const json::value& name : names) {
    if (!name.is_string()) return Wrong(place, "\"type\" is not a name or a list of names");
    types.emplace_back(name.get_string());
  }
  if (types.empty()) return Wrong(place, "\"type\" allows no value");
  return types;
}

Result<Expr> JsonSchemaCompiler::OfType(std::string_view type, const json::object& schema,
                                        const Place& place) {
  if (type == "object") return ObjectOf(schema, place);
  if (type == "array") return Array(schema, place);
  if (type == "string") return String(schema, place);
  if (type == "integer") return Number(schema, NumberKind::kInteger, place);
  if (type == "number") return Number(schema, NumberKind::kNumber, place);
  if (type == "boolean") return json_.Boolean();
  if (type == "null") return json_.Null();
  return Wrong(place, fmt::format("there is no type \"{}\"", type));
}

Result<uint32_t> JsonSchemaCompiler::Count(const json::object& schema, std::string_view keyword,
                                           uint32_t otherwise, const Place& place) const {
  const json::value* value = schema.if_contains(keyword);
  if (value == nullptr) return otherwise;
  const double count = value->is_number() ? value->to_number<double>() : -1.0;
  if (!(count >= 0) || count != std::floor(count)) {
    return Wrong(place, fmt::format("\"{}\" is not a count", keyword));
  }
  if (count < 2e9) return static_cast<uint32_t>(count);
  if (keyword.starts_with("max")) return Grammar::kUnbounded;
  return Unsupported(place, fmt::format("a \"{}\" above 2000000000", keyword));
}

Result<Expr> JsonSchemaCompiler::Number(const json::object& schema, NumberKind kind,
                                        const Place& place) {
  NumberRange range;
  const auto bound = [&](std::string_view keyword, std::optional<NumberBound>& end,
                         int direction) -> Status {
    const json::value* value = schema.if_contains(keyword);
    if (value == nullptr) return Ok{};
    if (!value->is_number()) {
      return Wrong(place, fmt::format("\"{}\" is not a number", keyword));
    }
    const NumberBound candidate{*value, keyword.starts_with("exclusive")};
    const double difference =
        end ? direction * (value->to_number<double>() - end->value.to_number<double>()) : 1;
    if (difference > 0 || (difference == 0 && candidate.exclusive)) end = candidate;
    return Ok{};
  };
  QUIRE_RETURN_IF_ERROR(bound("minimum", range.low, 1));
  QUIRE_RETURN_IF_ERROR(bound("exclusiveMinimum", range.low, 1));
  QUIRE_RETURN_IF_ERROR(bound("maximum", range.high, -1));
  QUIRE_RETURN_IF_ERROR(bound("exclusiveMaximum", range.high, -1));
  if (!range.low && !range.high) {
    return kind == NumberKind::kInteger ? json_.Integer() : json_.Number();
  }
  auto numbers = NumbersWithin(range, kind, builder_);
  if (!numbers.ok()) return InPlace(std::move(numbers).error(), place);
  if (!*numbers) return Wrong(place, "no number is within its bounds");
  return **numbers;
}

Result<Expr> JsonSchemaCompiler::String(const json::object& schema, const Place& place) {
  const json::value* pattern = schema.if_contains("pattern");
  const json::value* format = schema.if_contains("format");
  const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
  if (pattern != nullptr || format != nullptr) {
    if (has_length || (pattern != nullptr && format != nullptr)) {
      return Unsupported(place, "more than one of \"pattern\", \"format\" and a length");
    }
    const json::value& named = pattern != nullptr ? *pattern : *format;
    if (!named.is_string()) return Wrong(place, "\"pattern\" or \"format\" is not a string");
    std::optional<std::string> text(named.get_string());
    if (format != nullptr) text = PatternOfFormat(*text);
    if (!text) {
      return Unsupported(place, fmt::format("the \"format\" {}", json::serialize(named)));
    }
    const auto spell = [&](const CharacterSet& set) { return json_.Spelled(set); };
    auto content = ParseRegex(*text, builder_, spell);
    if (!content.ok()) return InPlace(std::move(content).error(), place);
    return json_.Quoted(*content);
  }
  if (!has_length) return json_.String();
  QUIRE_ASSIGN_OR_RETURN(const uint32_t min, Count(schema, "minLength", 0, place));
  QUIRE_ASSIGN_OR_RETURN(const uint32_t max,
                         Count(schema, "maxLength", Grammar::kUnbounded, place));
  if (min > max) return Wrong(place, "\"minLength\" is above \"maxLength\"");
  return json_.Quoted(builder_.Times(json_.AnyCharacter(), min, max));
}

// Items are read from the last to the first: what follows one is optional once there are enough.
Result<Expr> JsonSchemaCompiler::Array(const json::object& schema, const Place& place) {
  std::vector<Expr> first;
  if (const json::value* list = schema.if_contains("prefixItems")) {
    if (!list->is_array()) return Wrong(place, "\"prefixItems\" is not a list");
    if (list->get_array().size() > kNestingMax) {
      return Unsupported(place, "more than 64 \"prefixItems\"");
    }
    for (size_t i = 0; i < list->get_array().size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(
          const Expr item,
          Schema(list->get_array()[i], place.At("prefixItems").At(std::to_string(i))));
      first.push_back(item);
    }
  }
  const auto count = static_cast<uint32_t>(first.size());
  QUIRE_ASSIGN_OR_RETURN(const uint32_t min, Count(schema, "minItems", count, place));
  QUIRE_ASSIGN_OR_RETURN(uint32_t max, Count(schema, "maxItems", Grammar::kUnbounded, place));
  const json::value* items = schema.if_contains("items");
  if (items != nullptr && items->is_array()) {
    return Unsupported(place, "a list of \"items\" (\"prefixItems\" is its present name)");
  }
  const bool closed = items != nullptr ? *items == false : count > 0 && min <= count;
  if (closed) max = std::min(max, count);
  if (min > max && schema.contains("minItems")) {
    return Wrong(place, "\"minItems\" is above what the array may hold");
  }
  Expr rest = builder_.Empty();
  if (max > count) {
    QUIRE_ASSIGN_OR_RETURN(
        const Expr item, Schema(items != nullptr ? *items : json::value(true), place.At("items")));
    if (count == 0) {
      return json_.Enclosed("[]", json_.List(item, min, max));
    }
    const uint32_t left = max == Grammar::kUnbounded ? max : max - count;
    rest = builder_.Times(builder_.Concatenate({json_.Comma(), item}),
                          min > count ? min - count : 0, left);
  }
  for (uint32_t i = std::min(count, max); i-- > 0;) {
    const Expr separator = i == 0 ? builder_.Empty() : json_.Comma();
    rest = builder_.Concatenate({separator, first[i], rest});
    if (i >= min) rest = builder_.Optional(rest);
  }
  return json_.Enclosed("[]", rest);
}

Result<GrammarPtr> CompileJsonSchema(const json::value& schema) {
  GrammarBuilder builder;
  QUIRE_RETURN_IF_ERROR(JsonSchemaCompiler(schema, builder).Compile());
  return builder.Build();
}

Result<GrammarPtr> CompileJsonObject() {
  GrammarBuilder builder;
  builder.Define(0, JsonExpressions(builder).Object());
  return builder.Build();
}

}  // namespace quire::text
