// Substring search whose time is linear in the text whatever the pattern: std::string_view::find is
// quadratic on hostile pairs.
#pragma once

#include <cstring>
#include <string_view>

namespace quire::text::jinja {

inline size_t Find(std::string_view text, std::string_view pattern, size_t from = 0) {
  if (from > text.size()) return std::string_view::npos;
  if (pattern.empty()) return from;
  if (text.empty()) return std::string_view::npos;
  const void* found =
      memmem(text.data() + from, text.size() - from, pattern.data(), pattern.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace quire::text::jinja
