#include "text/json_access.h"

namespace quire::text {

namespace json = boost::json;

Result<json::value> ParseJson(std::string_view text, std::string_view what) {
  json::stream_parser parser;
  json::error_code error;
  const size_t parsed = parser.write_some(text.data(), text.size(), error);
  if (!error && parsed < text.size()) {
    // White space may follow the document, nothing else.
    if (text.find_first_not_of(" \t\r\n", parsed) != std::string_view::npos) {
      error = json::error::extra_data;
    }
  }
  if (!error) parser.finish(error);
  if (error) {
    return MakeError(ErrorKind::kInvalid, "{} is no valid JSON: {} at byte {}", what,
                     error.message(), parsed);
  }
  return parser.release();
}

const json::value* Member(const json::value& object, std::string_view key) {
  const json::object* members = object.if_object();
  return members == nullptr ? nullptr : members->if_contains(json::string_view(key));
}

const json::array* ArrayMember(const json::value& object, std::string_view key) {
  const json::value* member = Member(object, key);
  return member == nullptr ? nullptr : member->if_array();
}

const json::object* ObjectMember(const json::value& object, std::string_view key) {
  const json::value* member = Member(object, key);
  return member == nullptr ? nullptr : member->if_object();
}

std::optional<std::string_view> StringMember(const json::value& object, std::string_view key) {
  const json::value* member = Member(object, key);
  return member == nullptr ? std::nullopt : AsString(*member);
}

std::optional<bool> BoolMember(const json::value& object, std::string_view key) {
  const json::value* member = Member(object, key);
  const bool* value = member == nullptr ? nullptr : member->if_bool();
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<int64_t> AsInt(const json::value& value) {
  const int64_t* integer = value.if_int64();
  return integer == nullptr ? std::nullopt : std::optional(*integer);
}

std::optional<std::string_view> AsString(const json::value& value) {
  const json::string* text = value.if_string();
  return text == nullptr ? std::nullopt
                         : std::optional(std::string_view(text->data(), text->size()));
}

std::string_view TypeOf(const json::value& object) {
  return StringMember(object, "type").value_or("");
}

}  // namespace quire::text
