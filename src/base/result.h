// Result<T>: a value or an Error. What the environment, a file or a client got wrong travels as a
// value; broken invariants abort (check.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "base/check.h"

namespace quire {

// What kind of thing went wrong; decides the exit code of a command and the status of a response.
enum class ErrorKind {
  kUsage,          // the caller asked for something that cannot be (exit code 2, HTTP 400)
  kNotFound,       // a file or a name does not exist
  kInvalid,        // a file's or a request's content is malformed
  kUnsupported,    // well formed, but nothing here can do it
  kExhausted,      // memory or another resource does not suffice
  kIo,             // the system refused
  kContradiction,  // a request's wishes, each well formed, leave nothing that meets them all
};

// One sentence that says what was wrong, what was expected, and what to do.
struct Error {
  ErrorKind kind = ErrorKind::kInvalid;
  std::string message;
  std::string param = {};  // the flag or request field at fault, where there is one
};

template <typename... Args>
[[nodiscard]] Error MakeError(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error{kind, fmt::format(format, std::forward<Args>(args)...), {}};
}

// Either a T or an Error. Reading the wrong one is a broken invariant.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return CheckedValue(); }
  const T& value() const& { return const_cast<Result*>(this)->CheckedValue(); }
  T&& value() && { return std::move(CheckedValue()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    QUIRE_CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    QUIRE_CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  T& CheckedValue() {
    if (!ok()) base::CheckFailed(__FILE__, __LINE__, "value of an error: " + error().message);
    return std::get<0>(state_);
  }

  std::variant<T, Error> state_;
};

// Success carries nothing.
struct Ok {};
using Status = Result<Ok>;

}  // namespace quire

#define QUIRE_CONCAT_INNER_(a, b) a##b
#define QUIRE_CONCAT_(a, b) QUIRE_CONCAT_INNER_(a, b)

// QUIRE_RETURN_IF_ERROR(expr): expr is a Status or any Result whose value is not needed.
#define QUIRE_RETURN_IF_ERROR(expr)                                 \
  do {                                                              \
    auto quire_status = (expr);                                     \
    if (!quire_status.ok()) return std::move(quire_status).error(); \
  } while (false)

// QUIRE_ASSIGN_OR_RETURN(auto x, expr): x = the value of expr, or return its error.
#define QUIRE_ASSIGN_OR_RETURN(lhs, expr) \
  QUIRE_ASSIGN_OR_RETURN_(QUIRE_CONCAT_(quire_result_, __LINE__), lhs, expr)
#define QUIRE_ASSIGN_OR_RETURN_(result, lhs, expr)    \
  auto result = (expr);                               \
  if (!result.ok()) return std::move(result).error(); \
  lhs = std::move(result).value()
