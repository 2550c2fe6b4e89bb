// Buffer: the only owner of large memory. Page-backed, zeroed, aligned to 64 bytes or better.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/result.h"

namespace quire {

class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Zeroed memory, with huge pages where the system grants them. kExhausted if there is none.
  static Result<Buffer> Allocate(size_t bytes);

  // As a container of the standard library would: std::bad_alloc where memory runs out.
  static Buffer AllocateOrThrow(size_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // The first `count` values of type T.
  template <typename T>
  std::span<T> as(size_t count) {
    QUIRE_CHECK_LE(count * sizeof(T), bytes_);
    return {reinterpret_cast<T*>(data_), count};
  }
  template <typename T>
  std::span<const T> as(size_t count) const {
    QUIRE_CHECK_LE(count * sizeof(T), bytes_);
    return {reinterpret_cast<const T*>(data_), count};
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quire
