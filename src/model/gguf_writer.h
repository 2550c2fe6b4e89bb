// GgufWriter: a GGUF v3 file, written from front to back; of the tensors only what the caller hands
// over is ever in memory.
//
// Order of use: Set* and Declare, then Open, then Append the bytes of all tensors in the order of
// their declaration, in pieces of any size, then Finish. The file appears under its name only when
// it is complete; a writer that is dropped before leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"
#include "tensor/dtype.h"

namespace quire::model {

class GgufWriter {
 public:
  GgufWriter() = default;
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  void SetInt(std::string_view key, uint32_t value);
  void SetFloat(std::string_view key, float value);
  void SetTrue(std::string_view key);
  void SetFalse(std::string_view key);
  void SetText(std::string_view key, std::string_view value);
  void SetInts(std::string_view key, std::span<const int32_t> values);
  void SetFloats(std::string_view key, std::span<const float> values);
  void SetTexts(std::string_view key, std::span<const std::string> values);

  // A tensor of rows x cols; rows = 0 for one dimension.
  void Declare(std::string_view name, DType type, int64_t rows, int64_t cols);

  // The bytes of all tensors declared.
  uint64_t tensor_bytes() const { return data_bytes_; }

  Status Open(const std::string& path);
  Status Append(std::span<const std::byte> bytes);
  Status Finish();

 private:
  void PutKey(std::string_view key, GgufType type);
  Status Write(std::span<const std::byte> bytes);
  Status Pad();

  std::string metadata_;  // encoded pairs
  uint64_t pairs_ = 0;
  std::string directory_;              // encoded tensor descriptions
  std::vector<uint64_t> tensor_ends_;  // in the data section, before padding
  uint64_t data_bytes_ = 0;            // declared, with padding

  std::string path_;
  std::string partial_path_;  // empty: nothing to clean up
  std::ofstream out_;
  uint64_t data_written_ = 0;
  size_t tensor_ = 0;  // being appended
};

}  // namespace quire::model
