// Reading JSON documents of unknown origin: bounded parsing, and typed fields that complain once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/result.h"

namespace quire::model {

// Parses `text` (at most 64 MiB, nesting at most 32) as one JSON object. `where` names the document
// in messages.
Result<boost::json::object> ParseJsonObject(std::string_view text, std::string_view where);

// The file at `path` as a JSON object; kNotFound if there is none.
Result<boost::json::object> ReadJsonObject(const std::string& path);

// The whole file as text, at most `limit` bytes.
Result<std::string> ReadTextFile(const std::string& path, size_t limit);

// Typed access to an object's fields. A field that is absent or null takes the fallback; one of
// another type, or a required one that is absent, is recorded, and the first such error is kept:
// read everything, then ask status(). Numbers must be finite.
class JsonFields {
 public:
  // Both must outlive this.
  JsonFields(const boost::json::object& object, std::string_view where)
      : object_(object), where_(where) {}

  const boost::json::value* Find(std::string_view key) const;  // null if absent or null
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  bool Mentions(std::string_view key) const { return object_.contains(key); }  // also as null

  int Int(std::string_view key);  // required
  int Int(std::string_view key, int fallback);
  double Number(std::string_view key, double fallback);
  std::optional<bool> Bool(std::string_view key);  // nullopt if absent
  std::string Text(std::string_view key, std::string_view fallback);
  std::vector<float> Numbers(std::string_view key);         // empty if absent
  std::vector<std::string> Texts(std::string_view key);     // empty if absent
  std::vector<int32_t> IntOrInts(std::string_view key);     // 3 and [3] are the same
  const boost::json::object* Object(std::string_view key);  // null if absent

  // Records an error of the caller's own, unless there is one already.
  void Fail(Error error);
  Status status() const { return error_ ? Status(*error_) : Status(Ok{}); }

 private:
  void FailType(std::string_view key, std::string_view expected);

  const boost::json::object& object_;
  std::string_view where_;
  std::optional<Error> error_;
};

}  // namespace quire::model
