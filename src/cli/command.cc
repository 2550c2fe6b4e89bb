#include "cli/command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include <boost/json/serialize.hpp>

namespace quire::cli {
namespace {

void AppendPretty(const boost::json::value& value, const std::string& indent, std::string& out) {
  const std::string inner = indent + "  ";
  std::string separator = "\n" + inner;
  if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
    out += '{';
    for (const auto& member : *object) {
      out += separator + boost::json::serialize(boost::json::value(member.key())) + ": ";
      AppendPretty(member.value(), inner, out);
      separator = ",\n" + inner;
    }
    out += "\n" + indent + "}";
  } else if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
    bool nested = false;
    for (const auto& element : *array) nested |= element.is_object() || element.is_array();
    if (!nested) {
      out += boost::json::serialize(value);
      return;
    }
    out += '[';
    for (const auto& element : *array) {
      out += separator;
      AppendPretty(element, inner, out);
      separator = ",\n" + inner;
    }
    out += "\n" + indent + "]";
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

Status WriteOut(std::string_view text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    return MakeError(ErrorKind::kIo, "cannot write the result to stdout: {}.",
                     std::strerror(errno));
  }
  return Ok{};
}

std::string PrettyJson(const boost::json::value& value) {
  std::string out;
  AppendPretty(value, "", out);
  return out + "\n";
}

Status WriteJson(const boost::json::value& value) {
  return WriteOut(PrettyJson(value));
}

Result<std::string> ReadText(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return MakeError(ErrorKind::kIo, "cannot read {}: it is a folder.", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return MakeError(errno == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo, "cannot open {}: {}.",
                     path, std::strerror(errno));
  }
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return MakeError(ErrorKind::kIo, "cannot read {}: is it a folder?", path);
  return text;
}

}  // namespace quire::cli
