#include "server/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::server {
namespace json = boost::json;

std::string_view KindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

const json::value* FieldReader::Find(std::string_view name) const {
  sought_.insert(name);
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::vector<std::string> FieldReader::Unread(std::span<const std::string_view> elsewhere) const {
  std::vector<std::string> names;
  for (const json::key_value_pair& field : object_) {
    const std::string_view name = field.key();
    if (!sought_.contains(name) && std::ranges::find(elsewhere, name) == elsewhere.end()) {
      names.emplace_back(name);
    }
  }
  return names;
}

void FieldReader::Fail(std::string_view name, std::string message) {
  if (!error_) error_ = Error{ErrorKind::kUsage, std::move(message), std::string(name)};
}

Status FieldReader::status() const {
  if (error_) return *error_;
  return Ok{};
}

void FieldReader::Bool(std::string_view name, bool& target) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) {
    return Fail(name, fmt::format("'{}' must be true or false, not {}", name, KindName(*value)));
  }
  target = value->get_bool();
}

void FieldReader::Int(std::string_view name, int& target, Range range) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  double number = std::numeric_limits<double>::quiet_NaN();
  if (value->is_number()) number = value->to_number<double>();
  // Some clients send 16.0 for 16.
  if (!(std::floor(number) == number)) {
    return Fail(name, fmt::format("'{}' must be an integer, not {}", name, KindName(*value)));
  }
  if (number < range.min || number > range.max) {
    return Fail(name, fmt::format("'{}' must be between {:.0f} and {:.0f}, not {:.0f}", name,
                                  range.min, range.max, number));
  }
  target = static_cast<int>(number);
}

void FieldReader::Int(std::string_view name, std::optional<int>& target, Range range) {
  if (Find(name) == nullptr) return;
  int number = 0;
  Int(name, number, range);
  if (ok()) target = number;
}

void FieldReader::Double(std::string_view name, double& target, Range range) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) {
    return Fail(name, fmt::format("'{}' must be a number, not {}", name, KindName(*value)));
  }
  const double number = value->to_number<double>();
  if (!(number >= range.min && number <= range.max)) {
    return Fail(name, fmt::format("'{}' must be between {} and {}, not {}", name, range.min,
                                  range.max, number));
  }
  target = number;
}

void FieldReader::Float(std::string_view name, float& target, Range range) {
  double number = target;
  Double(name, number, range);
  target = static_cast<float>(number);
}

void FieldReader::Seed(std::string_view name, std::optional<uint64_t>& target) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (value->is_int64()) {
    target = static_cast<uint64_t>(value->get_int64());
  } else if (value->is_uint64()) {
    target = value->get_uint64();
  } else {
    Fail(name, fmt::format("'{}' must be an integer, not {}", name, KindName(*value)));
  }
}

void FieldReader::String(std::string_view name, std::string& target) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) {
    return Fail(name, fmt::format("'{}' must be a string, not {}", name, KindName(*value)));
  }
  target = value->get_string();
}

void FieldReader::TokenIds(std::string_view name, std::vector<TokenId>& target) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array()) {
    return Fail(name,
                fmt::format("'{}' must be a list of token ids, not {}", name, KindName(*value)));
  }
  std::vector<TokenId> ids;
  for (const json::value& item : value->get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 ||
        item.get_int64() > std::numeric_limits<TokenId>::max()) {
      return Fail(name, fmt::format("'{}' must hold token ids (non-negative integers)", name));
    }
    ids.push_back(static_cast<TokenId>(item.get_int64()));
  }
  target = std::move(ids);
}

void FieldReader::Strings(std::string_view name, std::vector<std::string>& target,
                          size_t max_count) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  std::vector<std::string> strings;
  if (value->is_string()) {
    strings.emplace_back(value->get_string());
  } else if (value->is_array()) {
    for (const json::value& item : value->get_array()) {
      if (!item.is_string()) {
        return Fail(name, fmt::format("'{}' must hold strings, not {}", name, KindName(item)));
      }
      strings.emplace_back(item.get_string());
    }
  } else {
    return Fail(name, fmt::format("'{}' must be a string or a list of strings, not {}", name,
                                  KindName(*value)));
  }
  if (strings.size() > max_count) {
    return Fail(name, fmt::format("'{}' may hold at most {} strings, not {}", name, max_count,
                                  strings.size()));
  }
  target = std::move(strings);
}

}  // namespace quire::server
