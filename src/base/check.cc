#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire::base {

void CheckFailed(const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: %.*s\n", file, line, static_cast<int>(message.size()),
               message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace quire::base
