// CHECK macros: a broken invariant of our own aborts the process with both values.
//
// Never for input: what a file or a client got wrong is a Result (result.h).
#pragma once

#include <string_view>

#include <fmt/core.h>

namespace quire::base {

// Prints `file:line: message` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, std::string_view message);

}  // namespace quire::base

#define QUIRE_CHECK(condition)                                                     \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::quire::base::CheckFailed(__FILE__, __LINE__, "check failed: " #condition); \
  } while (false)

#define QUIRE_CHECK_OP_(a, op, b)                                                                \
  do {                                                                                           \
    const auto& quire_a = (a);                                                                   \
    const auto& quire_b = (b);                                                                   \
    if (!(quire_a op quire_b)) [[unlikely]]                                                      \
      ::quire::base::CheckFailed(                                                                \
          __FILE__, __LINE__,                                                                    \
          fmt::format("check failed: " #a " " #op " " #b " ({} against {})", quire_a, quire_b)); \
  } while (false)

#define QUIRE_CHECK_EQ(a, b) QUIRE_CHECK_OP_(a, ==, b)
#define QUIRE_CHECK_NE(a, b) QUIRE_CHECK_OP_(a, !=, b)
#define QUIRE_CHECK_LT(a, b) QUIRE_CHECK_OP_(a, <, b)
#define QUIRE_CHECK_LE(a, b) QUIRE_CHECK_OP_(a, <=, b)
#define QUIRE_CHECK_GT(a, b) QUIRE_CHECK_OP_(a, >, b)
#define QUIRE_CHECK_GE(a, b) QUIRE_CHECK_OP_(a, >=, b)

// On in the presets `dev` and `asan`: checks too dear for the hot path of a release build. Where
// one is more than a condition: if constexpr (QUIRE_DEAR_CHECKS).
#ifdef QUIRE_CHECKS
#define QUIRE_DCHECK(condition) QUIRE_CHECK(condition)
#define QUIRE_DEAR_CHECKS 1
#else
#define QUIRE_DEAR_CHECKS 0
#define QUIRE_DCHECK(condition) \
  do {                          \
  } while (false && (condition))
#endif
