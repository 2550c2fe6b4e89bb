#include "tensor/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace quire {

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return MakeError(errno == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo,
                     "cannot open '{}': {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return MakeError(ErrorKind::kIo, "cannot read '{}': not a regular file", path);
  }
  MappedFile file;
  if (info.st_size > 0) {
    size_t bytes = static_cast<size_t>(info.st_size);
    void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) {
      ::close(fd);
      return MakeError(ErrorKind::kIo, "cannot map '{}': {}", path, std::strerror(errno));
    }
    file.data_ = static_cast<const std::byte*>(memory);
    file.bytes_ = bytes;
  }
  ::close(fd);
  return file;
}

void MappedFile::Evict(std::span<const std::byte> range) const {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Only whole pages inside the range: neighbours may still be in use.
  uintptr_t begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  uintptr_t end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace quire
