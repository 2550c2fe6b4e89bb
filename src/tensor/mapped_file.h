// MappedFile: a file mapped read-only. Views into it live as long as it does.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace quire {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // kNotFound or kIo; an empty file maps to an empty span.
  static Result<MappedFile> Open(const std::string& path);

  std::span<const std::byte> contents() const { return {data_, bytes_}; }

  // Tells the system that these bytes are not needed soon: their pages leave the resident set and
  // come back from the file when touched.
  void Evict(std::span<const std::byte> range) const;

 private:
  const std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quire
