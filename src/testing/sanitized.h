// Whether this is a sanitizer build: memory limits cannot hold there, and everything takes longer.
#pragma once

namespace quire::testing {

#ifdef QUIRE_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace quire::testing
