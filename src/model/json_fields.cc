#include "model/json_fields.h"

#include <cmath>
#include <limits>

#include "tensor/mapped_file.h"

namespace quire::model {

namespace json = boost::json;

namespace {

constexpr size_t kMaxJsonBytes = size_t{64} << 20;

std::optional<double> ToNumber(const json::value& value) {
  double number = 0;
  if (value.is_double()) {
    number = value.get_double();
  } else if (value.is_int64()) {
    number = static_cast<double>(value.get_int64());
  } else if (value.is_uint64()) {
    number = static_cast<double>(value.get_uint64());
  } else {
    return std::nullopt;
  }
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

// Also 32.0: some tools write every number as a float.
std::optional<int32_t> ToInt(const json::value& value) {
  std::optional<double> number = ToNumber(value);
  if (!number || *number != std::floor(*number) ||
      std::abs(*number) > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int32_t>(*number);
}

}  // namespace

Result<json::object> ParseJsonObject(std::string_view text, std::string_view where) {
  if (text.size() > kMaxJsonBytes) {
    return MakeError(ErrorKind::kInvalid, "{} has {} bytes; at most {} are read", where,
                     text.size(), kMaxJsonBytes);
  }
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error) {
    return MakeError(ErrorKind::kInvalid, "{} is no valid JSON: {}", where, error.message());
  }
  if (!value.is_object()) {
    return MakeError(ErrorKind::kInvalid, "{} holds no JSON object", where);
  }
  return std::move(value.get_object());
}

Result<json::object> ReadJsonObject(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  std::span<const std::byte> bytes = file.contents();
  return ParseJsonObject({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

Result<std::string> ReadTextFile(const std::string& path, size_t limit) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  std::span<const std::byte> bytes = file.contents();
  if (bytes.size() > limit) {
    return MakeError(ErrorKind::kInvalid, "'{}' has {} bytes; at most {} are read", path,
                     bytes.size(), limit);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

const json::value* JsonFields::Find(std::string_view key) const {
  const json::value* value = object_.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void JsonFields::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void JsonFields::FailType(std::string_view key, std::string_view expected) {
  const json::value* value = Find(key);
  std::string found = value == nullptr ? "absent" : json::serialize(*value);
  if (found.size() > 80) found.resize(80);
  Fail(MakeError(ErrorKind::kInvalid, "{}: '{}' is {}, and {} is expected", where_, key, found,
                 expected));
}

int JsonFields::Int(std::string_view key) {
  if (!Has(key)) FailType(key, "an integer");
  return Int(key, 0);
}

int JsonFields::Int(std::string_view key, int fallback) {
  const json::value* value = Find(key);
  if (value == nullptr) return fallback;
  std::optional<int32_t> integer = ToInt(*value);
  if (!integer) FailType(key, "an integer");
  return integer.value_or(fallback);
}

double JsonFields::Number(std::string_view key, double fallback) {
  const json::value* value = Find(key);
  if (value == nullptr) return fallback;
  std::optional<double> number = ToNumber(*value);
  if (!number) FailType(key, "a number");
  return number.value_or(fallback);
}

std::optional<bool> JsonFields::Bool(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) {
    FailType(key, "true or false");
    return std::nullopt;
  }
  return value->get_bool();
}

std::string JsonFields::Text(std::string_view key, std::string_view fallback) {
  const json::value* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    FailType(key, "a string");
    return std::string(fallback);
  }
  return std::string(value->get_string());
}

std::vector<float> JsonFields::Numbers(std::string_view key) {
  const json::value* value = Find(key);
  std::vector<float> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    FailType(key, "a list of numbers");
    return numbers;
  }
  for (const json::value& element : value->get_array()) {
    std::optional<double> number = ToNumber(element);
    if (!number) {
      FailType(key, "a list of numbers");
      return {};
    }
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

std::vector<std::string> JsonFields::Texts(std::string_view key) {
  const json::value* value = Find(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (!value->is_array()) {
    FailType(key, "a list of strings");
    return texts;
  }
  for (const json::value& element : value->get_array()) {
    if (!element.is_string()) {
      FailType(key, "a list of strings");
      return {};
    }
    texts.emplace_back(element.get_string());
  }
  return texts;
}

std::vector<int32_t> JsonFields::IntOrInts(std::string_view key) {
  const json::value* value = Find(key);
  std::vector<int32_t> integers;
  if (value == nullptr) return integers;
  const json::array* list = value->if_array();
  size_t count = list == nullptr ? 1 : list->size();
  for (size_t i = 0; i < count; ++i) {
    std::optional<int32_t> integer = ToInt(list == nullptr ? *value : (*list)[i]);
    if (!integer) {
      FailType(key, "an integer or a list of integers");
      return {};
    }
    integers.push_back(*integer);
  }
  return integers;
}

const json::object* JsonFields::Object(std::string_view key) {
  const json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    FailType(key, "an object");
    return nullptr;
  }
  return &value->get_object();
}

}  // namespace quire::model
