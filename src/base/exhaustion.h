// Memory that cannot be had for one request must not end the program.
#pragma once

#include <new>
#include <stdexcept>
#include <utility>

#include "base/result.h"

namespace quire::base {

// What `function` returns, a Result or Status; kExhausted where it could not get the memory.
template <typename Function>
auto WithinMemory(Function&& function) -> decltype(function()) {
  const Error exhausted{ErrorKind::kExhausted,
                        "there is not enough memory for this request; send a smaller one"};
  try {
    return std::forward<Function>(function)();
  } catch (const std::bad_alloc&) {
    return exhausted;
  } catch (const std::length_error&) {
    return exhausted;
  }
}

}  // namespace quire::base
