// GGUF files (versions 2 and 3, little endian): metadata and a directory of tensors, by memory map.
//
// A GgufFile owns its maps (one per shard); every string_view, value and tensor it hands out points
// into them and lives as long as it does (moving it is fine). Opening checks everything that later
// reads rely on: all lengths lie inside the file, names are unique, tensors are aligned and do not
// overlap. What is allocated while opening is in proportion to the entries really present.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tensor/mapped_file.h"
#include "tensor/view.h"

namespace quire::model {

// The types of metadata values, with the format's own numbers.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view Name(GgufType type);

// A metadata value as it lies in the file. A scalar is an array of one.
struct GgufValue {
  GgufType type = GgufType::kU8;  // of the elements; never kArray
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> data;  // the elements; strings with their length prefixes
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// A tensor of the directory. Its type may be one that nothing here decodes: that matters only when
// the tensor is asked for.
struct GgufTensor {
  std::string_view name;
  uint32_t type_id = 0;
  int dimensions = 1;
  std::array<int64_t, 4> extents{1, 1, 1, 1};  // innermost (contiguous) first
  std::span<const std::byte> data;             // empty if the type is unknown

  int64_t cols() const { return extents[0]; }
  int64_t rows() const { return extents[1] * extents[2] * extents[3]; }
};

// The name of a ggml tensor type, also of those not supported; "type 99" if nobody knows it.
std::string GgufTensorTypeName(uint32_t type_id);

class GgufFile {
 public:
  // Opens `path`; if it is the first of a split (NAME-00001-of-0000N.gguf), all shards.
  static Result<GgufFile> Open(const std::string& path);

  // Parses one file that lies in memory; `bytes` must outlive the result.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return file_bytes_; }  // of all shards
  int shards() const { return shards_; }

  // All metadata, in file order (of the first shard).
  std::span<const GgufEntry> entries() const { return entries_; }
  const GgufValue* Find(std::string_view key) const;  // null if absent

  // Typed access: nullopt if the key is absent or holds something else. Integers of every width
  // (and booleans) read as int64, and every number as double.
  std::optional<int64_t> GetInt(std::string_view key) const;
  std::optional<double> GetFloat(std::string_view key) const;
  std::optional<bool> GetBool(std::string_view key) const;
  std::optional<std::string_view> GetString(std::string_view key) const;
  std::optional<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  std::optional<std::vector<float>> GetFloatArray(std::string_view key) const;
  std::optional<std::vector<std::string_view>> GetStringArray(std::string_view key) const;

  // The directory, shard after shard.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;  // null if absent

  // kNotFound if absent, kUnsupported if nothing here can decode its type.
  Result<StoredTensor> Tensor(std::string_view name) const;

  // Lets the pages of `range` (bytes of a tensor) leave memory; they come back when touched.
  void Evict(std::span<const std::byte> range) const;

 private:
  Status AddShard(std::span<const std::byte> bytes);
  Status ParseHeader(class GgufReader& reader);
  Status ParseMetadata(class GgufReader& reader, uint64_t count);
  Status ParseDirectory(class GgufReader& reader, uint64_t count);
  Status OpenOtherShards(const std::string& path);

  std::vector<MappedFile> maps_;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  int shards_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> entry_by_key_;
  std::unordered_map<std::string_view, size_t> tensor_by_name_;
};

}  // namespace quire::model
