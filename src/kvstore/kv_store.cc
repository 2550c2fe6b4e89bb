#include "kvstore/kv_store.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace quire::kvstore {
namespace {

// What this process can still get: the system's estimate, and its control group's limit.
size_t AvailableMemoryBytes() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  for (size_t kib; meminfo >> key >> kib; std::getline(meminfo, unit)) {
    if (key == "MemAvailable:") available = kib * 1024;
  }
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  if (size_t bytes; limit >> bytes) available = std::min(available, bytes);
  return available;
}

double MiB(size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// The first `tokens` tokens of a piece; of a quantized one everything, since only the kernels know
// which bytes belong to which token.
void CopyKeys(const KvLayout& layout, int layer, int tokens, const std::byte* from, std::byte* to) {
  const kernels::KvCodec codec = layout.codecs(layer).keys;
  if (kernels::IsQuantized(codec)) {
    std::memcpy(to, from, layout.key_bytes(layer));
    return;
  }
  const size_t row = kernels::KeyPieceBytes(codec, 1, layout.block_size());
  const size_t used = kernels::KeyPieceBytes(codec, 1, tokens);
  for (int c = 0; c < layout.head_dim(); ++c) std::memcpy(to + c * row, from + c * row, used);
}
void CopyValues(const KvLayout& layout, int layer, int tokens, const std::byte* from,
                std::byte* to) {
  const kernels::KvCodec codec = layout.codecs(layer).values;
  const size_t used = kernels::ValuePieceBytes(codec, layout.head_dim(), tokens);
  std::memcpy(to, from, kernels::IsQuantized(codec) ? layout.value_bytes(layer) : used);
}

}  // namespace

Result<KvStore> KvStore::Create(const KvLayout& layout, size_t arena_bytes) {
  QUIRE_ASSIGN_OR_RETURN(const int frames, layout.FramesIn(arena_bytes));
  size_t bytes = frames * layout.frame_bytes();
  size_t available = AvailableMemoryBytes();
  if (bytes > available) {
    return MakeError(ErrorKind::kExhausted,
                     "no memory for the KV cache: {:.1f} MiB needed, {:.1f} MiB available; lower "
                     "--kv-cache-memory",
                     MiB(bytes), MiB(available));
  }
  QUIRE_ASSIGN_OR_RETURN(Buffer arena, Buffer::Allocate(bytes));
  return KvStore(layout, std::move(arena), frames);
}

void KvStore::CopyTokens(FrameId from, FrameId to, int tokens, int group) {
  QUIRE_CHECK(tokens >= 0 && tokens <= layout_.block_size());
  QUIRE_CHECK(group >= 0 && group < layout_.group_count());
  const std::byte* source = frame(from);
  std::byte* target = frame(to);
  for (int layer : layout_.groups()[group].layers) {
    for (int head = 0; head < layout_.kv_heads(); ++head) {
      const size_t keys = layout_.key_offset(layer, head);
      CopyKeys(layout_, layer, tokens, source + keys, target + keys);
      const size_t values = layout_.value_offset(layer, head);
      CopyValues(layout_, layer, tokens, source + values, target + values);
    }
  }
}

void KvStore::CopyFrame(FrameId from, FrameId to) {
  std::memcpy(frame(to), frame(from), layout_.frame_bytes());
}

void KvStore::Execute(const kv::PendingCopy& copy) {
  const bool body = copy.role == kv::FrameRole::kBody && copy.group < layout_.group_count();
  if (body) {
    CopyTokens(copy.from, copy.to, copy.tokens, copy.group);
  } else {
    CopyFrame(copy.from, copy.to);
  }
}

}  // namespace quire::kvstore
