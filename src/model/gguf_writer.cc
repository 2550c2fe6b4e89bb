#include "model/gguf_writer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"

namespace quire::model {

namespace {

constexpr uint64_t kAlignment = 32;

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutString(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out.append(text);
}

void PutArrayHead(std::string& out, GgufType type, size_t count) {
  Put(out, static_cast<uint32_t>(type));
  Put<uint64_t>(out, count);
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

GgufWriter::~GgufWriter() {
  if (partial_path_.empty()) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(partial_path_, ignored);
}

void GgufWriter::PutKey(std::string_view key, GgufType type) {
  PutString(metadata_, key);
  Put(metadata_, static_cast<uint32_t>(type));
  ++pairs_;
}

void GgufWriter::SetInt(std::string_view key, uint32_t value) {
  PutKey(key, GgufType::kU32);
  Put(metadata_, value);
}

void GgufWriter::SetFloat(std::string_view key, float value) {
  PutKey(key, GgufType::kF32);
  Put(metadata_, value);
}

void GgufWriter::SetTrue(std::string_view key) {
  PutKey(key, GgufType::kBool);
  Put<uint8_t>(metadata_, 1);
}

void GgufWriter::SetFalse(std::string_view key) {
  PutKey(key, GgufType::kBool);
  Put<uint8_t>(metadata_, 0);
}

void GgufWriter::SetText(std::string_view key, std::string_view value) {
  PutKey(key, GgufType::kString);
  PutString(metadata_, value);
}

void GgufWriter::SetInts(std::string_view key, std::span<const int32_t> values) {
  PutKey(key, GgufType::kArray);
  PutArrayHead(metadata_, GgufType::kI32, values.size());
  for (int32_t value : values) Put(metadata_, value);
}

void GgufWriter::SetFloats(std::string_view key, std::span<const float> values) {
  PutKey(key, GgufType::kArray);
  PutArrayHead(metadata_, GgufType::kF32, values.size());
  for (float value : values) Put(metadata_, value);
}

void GgufWriter::SetTexts(std::string_view key, std::span<const std::string> values) {
  PutKey(key, GgufType::kArray);
  PutArrayHead(metadata_, GgufType::kString, values.size());
  for (const std::string& value : values) PutString(metadata_, value);
}

void GgufWriter::Declare(std::string_view name, DType type, int64_t rows, int64_t cols) {
  QUIRE_CHECK(path_.empty());
  PutString(directory_, name);
  Put<uint32_t>(directory_, rows == 0 ? 1 : 2);
  Put<uint64_t>(directory_, static_cast<uint64_t>(cols));
  if (rows != 0) Put<uint64_t>(directory_, static_cast<uint64_t>(rows));
  Put<uint32_t>(directory_, Traits(type).gguf_id);
  Put<uint64_t>(directory_, data_bytes_);
  const uint64_t bytes = RowBytes(type, cols) * static_cast<uint64_t>(rows == 0 ? 1 : rows);
  tensor_ends_.push_back(data_bytes_ + bytes);
  data_bytes_ = Aligned(data_bytes_ + bytes);
}

Status GgufWriter::Open(const std::string& path) {
  QUIRE_CHECK(path_.empty());
  path_ = path;
  const std::string partial = path + ".partial";
  out_.open(partial, std::ios::binary | std::ios::trunc);
  if (!out_) {
    return MakeError(ErrorKind::kIo, "cannot write '{}': {}", partial, std::strerror(errno));
  }
  partial_path_ = partial;
  std::string head;
  Put<uint32_t>(head, 0x46554747);  // "GGUF"
  Put<uint32_t>(head, 3);
  Put<uint64_t>(head, tensor_ends_.size());
  Put<uint64_t>(head, pairs_);
  const uint64_t head_bytes = head.size() + metadata_.size() + directory_.size();
  QUIRE_RETURN_IF_ERROR(Write(BytesOf(head)));
  QUIRE_RETURN_IF_ERROR(Write(BytesOf(metadata_)));
  QUIRE_RETURN_IF_ERROR(Write(BytesOf(directory_)));
  return Write(BytesOf(std::string(Aligned(head_bytes) - head_bytes, '\0')));
}

Status GgufWriter::Write(std::span<const std::byte> bytes) {
  out_.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (out_) return Ok{};
  return MakeError(ErrorKind::kIo, "cannot write '{}': {}; is the disk full?", partial_path_,
                   std::strerror(errno));
}

Status GgufWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    QUIRE_CHECK_LT(tensor_, tensor_ends_.size());
    const uint64_t room = tensor_ends_[tensor_] - data_written_;
    const std::span<const std::byte> part = bytes.first(std::min<uint64_t>(room, bytes.size()));
    QUIRE_RETURN_IF_ERROR(Write(part));
    data_written_ += part.size();
    bytes = bytes.subspan(part.size());
    if (data_written_ < tensor_ends_[tensor_]) continue;
    QUIRE_RETURN_IF_ERROR(Pad());
    ++tensor_;
  }
  return Ok{};
}

Status GgufWriter::Pad() {
  const uint64_t padding = Aligned(data_written_) - data_written_;
  data_written_ += padding;
  return Write(BytesOf(std::string(padding, '\0')));
}

Status GgufWriter::Finish() {
  QUIRE_CHECK_EQ(data_written_, data_bytes_);
  out_.close();
  std::error_code error;
  if (out_) std::filesystem::rename(partial_path_, path_, error);
  if (!out_ || error) {
    return MakeError(ErrorKind::kIo, "cannot write '{}': {}", path_,
                     error ? error.message() : std::strerror(errno));
  }
  partial_path_.clear();
  return Ok{};
}

}  // namespace quire::model
