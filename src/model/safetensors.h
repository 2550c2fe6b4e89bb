// safetensors files: a JSON directory of tensors and their bytes, by memory map; and the models
// made of one file or of several with an index.
//
// These own their maps; tensors point into them. Opening checks that every tensor lies inside its
// file, has the bytes that its shape and type need, and overlaps no other.
// Format: https://huggingface.co/docs/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/mapped_file.h"
#include "tensor/view.h"

namespace quire::model {

// A tensor of the directory, of whatever type: that matters only when it is asked for.
struct SafeTensor {
  std::string dtype;           // as the file names it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // outermost first
  std::span<const std::byte> data;
};

class Safetensors {
 public:
  // One file.
  static Result<Safetensors> Open(const std::string& path);

  // model.safetensors in `directory`, or all files that model.safetensors.index.json names.
  static Result<Safetensors> OpenDirectory(const std::string& directory);

  // Parses one file that lies in memory; `bytes` must outlive the result.
  static Result<Safetensors> Parse(std::span<const std::byte> bytes);

  const std::map<std::string, SafeTensor, std::less<>>& tensors() const { return tensors_; }
  const SafeTensor* FindTensor(std::string_view name) const;  // null if absent
  uint64_t file_bytes() const { return file_bytes_; }
  int shards() const { return shards_; }

  // kNotFound if absent, kUnsupported if its type is none of F32, F16 and BF16. Leading dimensions
  // are rows. The bytes may lie at any address, also an odd one.
  Result<StoredTensor> Tensor(std::string_view name) const;

  // Lets the pages of `range` (bytes of a tensor) leave memory; they come back when touched.
  void Evict(std::span<const std::byte> range) const;

 private:
  Status AddFile(const std::string& path);
  Status AddShard(std::span<const std::byte> bytes);

  std::vector<MappedFile> maps_;
  std::map<std::string, SafeTensor, std::less<>> tensors_;
  uint64_t file_bytes_ = 0;
  int shards_ = 0;
};

}  // namespace quire::model
