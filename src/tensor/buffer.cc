#include "tensor/buffer.h"

#include <new>

#include <sys/mman.h>

namespace quire {

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<Buffer> Buffer::Allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(ErrorKind::kExhausted,
                     "cannot allocate {:.1f} MiB of memory; free some or ask for less",
                     static_cast<double>(bytes) / (1 << 20));
  }
  // Fewer TLB misses on streaming reads; only a hint, so a refusal does not matter.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer Buffer::AllocateOrThrow(size_t bytes) {
  Result<Buffer> buffer = Allocate(bytes);
  if (!buffer.ok()) throw std::bad_alloc();
  return std::move(buffer).value();
}

}  // namespace quire
