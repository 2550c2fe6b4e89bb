// FieldReader: typed access to the fields of a client's JSON object.
//
// Reads as many fields as there are and keeps the first error, so that a parser is a list of fields
// and one check at the end. A missing or null field leaves the target as it was (the default).
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/result.h"

namespace quire::server {

// Inclusive limits of a number.
struct Range {
  double min;
  double max;
};

class FieldReader {
 public:
  explicit FieldReader(const boost::json::object& object) : object_(object) {}

  void Bool(std::string_view name, bool& target);
  void Int(std::string_view name, int& target, Range range);
  void Int(std::string_view name, std::optional<int>& target, Range range);
  void Float(std::string_view name, float& target, Range range);
  void Double(std::string_view name, double& target, Range range);
  void Seed(std::string_view name, std::optional<uint64_t>& target);
  void String(std::string_view name, std::string& target);
  void TokenIds(std::string_view name, std::vector<TokenId>& target);

  // A string or a list of at most `max_count` strings.
  void Strings(std::string_view name, std::vector<std::string>& target, size_t max_count);

  // The field's value; nullptr if missing or null. `name` must outlive the reader.
  const boost::json::value* Find(std::string_view name) const;

  // Names of fields that the client sent and nobody looked for, here or (`elsewhere`) otherwise.
  std::vector<std::string> Unread(std::span<const std::string_view> elsewhere) const;

  // Records an error about `name` unless one was recorded before.
  void Fail(std::string_view name, std::string message);

  bool ok() const { return !error_.has_value(); }
  Status status() const;

 private:
  const boost::json::object& object_;
  mutable std::set<std::string_view> sought_;  // names are literals
  std::optional<Error> error_;
};

// "a number", "a string", ...: what a JSON value is, for messages.
std::string_view KindName(const boost::json::value& value);

}  // namespace quire::server
