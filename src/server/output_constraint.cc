#include "server/output_constraint.h"

#include <string>
#include <utility>
#include <vector>

namespace quire::server {
namespace json = boost::json;
namespace {

using Kind = sched::OutputConstraint::Kind;

class ConstraintReader {
 public:
  ConstraintReader(FieldReader& reader, std::optional<sched::OutputConstraint>& constraint)
      : reader_(reader), constraint_(constraint) {}

  void ResponseFormat() {
    const json::value* value = reader_.Find("response_format");
    if (value == nullptr) return;
    const json::object* format = value->if_object();
    const json::value* type = format ? format->if_contains("type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      return reader_.Fail("response_format", "'response_format' must be an object with a 'type'");
    }
    if (*type == "text") return;
    if (*type == "json_object") return Set("response_format", {Kind::kJsonObject, "", {}});
    if (*type != "json_schema") {
      return reader_.Fail("response_format",
                          "'response_format' has a type other than text, json_object and "
                          "json_schema");
    }
    const json::value* holder = format->if_contains("json_schema");
    const json::value* schema =
        holder && holder->is_object() ? holder->get_object().if_contains("schema") : nullptr;
    if (schema == nullptr) {
      return reader_.Fail("response_format", "'response_format' lacks json_schema.schema");
    }
    Set("response_format", {Kind::kJsonSchema, json::serialize(*schema), {}});
  }

  // A schema as JSON, or as a text that holds JSON.
  void Schema(std::string_view field, const json::value* value) {
    if (value == nullptr) return;
    const bool is_text = value->is_string();
    Set(field, {Kind::kJsonSchema,
                is_text ? std::string(value->get_string()) : json::serialize(*value),
                {}});
  }

  void Text(std::string_view field, const json::value* value, Kind kind) {
    if (value == nullptr) return;
    if (!value->is_string()) {
      return reader_.Fail(field,
                          fmt::format("'{}' must be a string, not {}", field, KindName(*value)));
    }
    Set(field, {kind, std::string(value->get_string()), {}});
  }

  void Choice(std::string_view field, const json::value* value) {
    if (value == nullptr) return;
    std::vector<std::string> choices;
    if (value->is_array()) {
      for (const json::value& choice : value->get_array()) {
        if (choice.is_string()) choices.emplace_back(choice.get_string());
      }
    }
    if (choices.empty() || choices.size() != value->get_array().size()) {
      return reader_.Fail(field, fmt::format("'{}' must be a list of strings", field));
    }
    Set(field, {Kind::kChoice, "", std::move(choices)});
  }

  void StructuredOutputs() {
    const json::value* value = reader_.Find("structured_outputs");
    if (value == nullptr) return;
    const json::object* object = value->if_object();
    if (object == nullptr) {
      return reader_.Fail("structured_outputs", "'structured_outputs' must be an object");
    }
    FieldReader fields(*object);
    Schema("structured_outputs.json", fields.Find("json"));
    Text("structured_outputs.regex", fields.Find("regex"), Kind::kRegex);
    Text("structured_outputs.grammar", fields.Find("grammar"), Kind::kGbnf);
    Choice("structured_outputs.choice", fields.Find("choice"));
    bool json_object = false;
    fields.Bool("json_object", json_object);
    if (!fields.ok()) reader_.Fail("structured_outputs", fields.status().error().message);
    if (json_object) Set("structured_outputs.json_object", {Kind::kJsonObject, "", {}});
  }

 private:
  void Set(std::string_view field, sched::OutputConstraint constraint) {
    if (constraint_) {
      return reader_.Fail(field, "an answer can be held to one format only");
    }
    constraint_ = std::move(constraint);
  }

  FieldReader& reader_;
  std::optional<sched::OutputConstraint>& constraint_;
};

}  // namespace

void ReadConstraint(FieldReader& reader, std::optional<sched::OutputConstraint>& constraint) {
  ConstraintReader fields(reader, constraint);
  fields.ResponseFormat();
  fields.Schema("guided_json", reader.Find("guided_json"));
  fields.Text("guided_regex", reader.Find("guided_regex"), Kind::kRegex);
  fields.Text("guided_grammar", reader.Find("guided_grammar"), Kind::kGbnf);
  fields.Choice("guided_choice", reader.Find("guided_choice"));
  fields.StructuredOutputs();
}

}  // namespace quire::server
