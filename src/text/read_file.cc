#include "text/read_file.h"

#include <filesystem>
#include <fstream>

namespace quire::text {

Result<std::string> ReadFile(const std::string& path) {
  constexpr uintmax_t kBytesMax = uintmax_t{1} << 30;
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return MakeError(ErrorKind::kNotFound, "cannot read {}: {}", path, error.message());
  }
  if (size > kBytesMax) {
    return MakeError(ErrorKind::kInvalid, "{} has {} bytes; more than 1 GiB is no such file", path,
                     size);
  }
  std::string content(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(content.data(), static_cast<std::streamsize>(size))) {
    return MakeError(ErrorKind::kIo, "cannot read {}", path);
  }
  return content;
}

}  // namespace quire::text
