#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "model/json_fields.h"

namespace quire::model {

namespace json = boost::json;

namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 20;
constexpr size_t kMaxShards = 1000;

struct TypeBytes {
  std::string_view name;
  int bytes;
};
constexpr TypeBytes kTypes[] = {{"F32", 4},  {"F16", 2},     {"BF16", 2},   {"F64", 8},
                                {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
                                {"U8", 1},   {"U16", 2},     {"U32", 4},    {"U64", 8},
                                {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

Error Malformed(std::string_view name, std::string_view what) {
  return MakeError(ErrorKind::kInvalid,
                   "the safetensors header gives tensor '{:.100}' {}; the file is corrupt", name,
                   what);
}

std::optional<uint64_t> ToUnsigned(const json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  if (value.is_uint64()) return value.get_uint64();
  return std::nullopt;
}

// The elements of `shape`, if their number is one.
std::optional<int64_t> ReadShape(const json::value* value, std::vector<int64_t>& shape) {
  if (value == nullptr || !value->is_array()) return std::nullopt;
  int64_t elements = 1;
  for (const json::value& extent : value->get_array()) {
    std::optional<uint64_t> number = ToUnsigned(extent);
    if (!number || *number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(*number), &elements)) {
      return std::nullopt;
    }
    shape.push_back(static_cast<int64_t>(*number));
  }
  return elements;
}

Result<SafeTensor> ReadTensor(std::string_view name, const json::value& description,
                              std::span<const std::byte> section) {
  if (!description.is_object()) return Malformed(name, "no description");
  const json::object& fields = description.get_object();
  SafeTensor tensor;
  const json::value* dtype = fields.if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) return Malformed(name, "no dtype");
  tensor.dtype = std::string(dtype->get_string());
  std::optional<int64_t> elements = ReadShape(fields.if_contains("shape"), tensor.shape);
  if (!elements) return Malformed(name, "no possible shape");

  const json::value* offsets = fields.if_contains("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return Malformed(name, "no data_offsets");
  }
  std::optional<uint64_t> begin = ToUnsigned(offsets->get_array()[0]);
  std::optional<uint64_t> end = ToUnsigned(offsets->get_array()[1]);
  if (!begin || !end || *begin > *end || *end > section.size()) {
    return Malformed(name, "bytes that lie beyond the file");
  }
  tensor.data = section.subspan(*begin, *end - *begin);
  for (const TypeBytes& type : kTypes) {
    int64_t bytes = 0;
    if (type.name != tensor.dtype) continue;
    if (__builtin_mul_overflow(*elements, int64_t{type.bytes}, &bytes) ||
        static_cast<uint64_t>(bytes) != tensor.data.size()) {
      return Malformed(name, fmt::format("{} bytes for {} values of type {}", tensor.data.size(),
                                         *elements, type.name));
    }
  }
  return tensor;
}

// Bytes that belong to two tensors would let a small file describe a large model.
Status CheckOverlap(const std::map<std::string, SafeTensor, std::less<>>& tensors) {
  using Entry = std::pair<std::span<const std::byte>, std::string_view>;
  std::vector<Entry> order;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.data.empty()) order.emplace_back(tensor.data, name);
  }
  std::sort(order.begin(), order.end(),
            [](const Entry& a, const Entry& b) { return a.first.data() < b.first.data(); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1].first.data() + order[i - 1].first.size() > order[i].first.data()) {
      return MakeError(ErrorKind::kInvalid,
                       "tensors '{:.100}' and '{:.100}' overlap; the file is corrupt",
                       order[i - 1].second, order[i].second);
    }
  }
  return Ok{};
}

// The files that an index names, each once, in order.
Result<std::set<std::string>> ShardNames(const json::object& index, const std::string& path) {
  JsonFields fields(index, path);
  const json::object* map = fields.Object("weight_map");
  if (map == nullptr) {
    return MakeError(ErrorKind::kInvalid, "{} has no 'weight_map' that says where tensors are",
                     path);
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : *map) {
    // A name only: an index must not reach outside its directory.
    if (!file.is_string() || file.get_string().empty() ||
        file.get_string().find('/') != json::string::npos ||
        file.get_string().find('\0') != json::string::npos) {
      return MakeError(ErrorKind::kInvalid, "{}: tensor '{:.100}' is in no file of the directory",
                       path, std::string_view(tensor));
    }
    names.emplace(file.get_string());
    if (names.size() > kMaxShards) {
      return MakeError(ErrorKind::kInvalid, "{} names more than {} files", path, kMaxShards);
    }
  }
  return names;
}

}  // namespace

Result<Safetensors> Safetensors::Parse(std::span<const std::byte> bytes) {
  Safetensors model;
  QUIRE_RETURN_IF_ERROR(model.AddShard(bytes));
  return model;
}

Result<Safetensors> Safetensors::Open(const std::string& path) {
  Safetensors model;
  QUIRE_RETURN_IF_ERROR(model.AddFile(path));
  return model;
}

Result<Safetensors> Safetensors::OpenDirectory(const std::string& directory) {
  const std::filesystem::path root(directory);
  const std::string index_path = root / "model.safetensors.index.json";
  std::error_code ignored;
  if (!std::filesystem::exists(index_path, ignored)) return Open(root / "model.safetensors");

  QUIRE_ASSIGN_OR_RETURN(json::object index, ReadJsonObject(index_path));
  QUIRE_ASSIGN_OR_RETURN(std::set<std::string> names, ShardNames(index, index_path));
  Safetensors model;
  for (const std::string& name : names) QUIRE_RETURN_IF_ERROR(model.AddFile(root / name));
  for (const auto& [tensor, file] : index.at("weight_map").get_object()) {
    if (model.FindTensor(tensor) == nullptr) {
      return MakeError(ErrorKind::kInvalid, "{} promises tensor '{:.100}', and {} does not hold it",
                       index_path, std::string_view(tensor), std::string_view(file.get_string()));
    }
  }
  return model;
}

Status Safetensors::AddFile(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  Status added = AddShard(map.contents());
  if (!added.ok()) {
    return MakeError(added.error().kind, "cannot load '{}': {}", path, added.error().message);
  }
  maps_.push_back(std::move(map));
  return Ok{};
}

Status Safetensors::AddShard(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() >= sizeof(header_bytes)) {
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  }
  if (bytes.size() < 8 || header_bytes > bytes.size() - 8 || header_bytes > kMaxHeaderBytes) {
    return MakeError(ErrorKind::kInvalid,
                     "this is no safetensors file or it is truncated: a header of {} bytes in a "
                     "file of {}",
                     header_bytes, bytes.size());
  }
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  QUIRE_ASSIGN_OR_RETURN(json::object header, ParseJsonObject(text, "the safetensors header"));
  std::span<const std::byte> section = bytes.subspan(8 + header_bytes);
  std::map<std::string, SafeTensor, std::less<>> found;
  for (const auto& [name, description] : header) {
    if (name == "__metadata__") continue;
    QUIRE_ASSIGN_OR_RETURN(SafeTensor tensor, ReadTensor(name, description, section));
    found.emplace(name, std::move(tensor));
  }
  QUIRE_RETURN_IF_ERROR(CheckOverlap(found));
  tensors_.merge(found);
  if (!found.empty()) {
    return MakeError(ErrorKind::kInvalid, "tensor '{:.100}' appears in two files of the model",
                     found.begin()->first);
  }
  file_bytes_ += bytes.size();
  ++shards_;
  return Ok{};
}

const SafeTensor* Safetensors::FindTensor(std::string_view name) const {
  auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<StoredTensor> Safetensors::Tensor(std::string_view name) const {
  const SafeTensor* tensor = FindTensor(name);
  if (tensor == nullptr) {
    return MakeError(ErrorKind::kNotFound, "the model has no tensor '{}'", name);
  }
  StoredTensor stored;
  stored.rows = 1;
  stored.cols = tensor->shape.empty() ? 1 : tensor->shape.back();
  for (size_t i = 0; i + 1 < tensor->shape.size(); ++i) stored.rows *= tensor->shape[i];
  stored.data = tensor->data.data();
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (Name(type) != tensor->dtype) continue;
    stored.type = type;
    return stored;
  }
  return MakeError(ErrorKind::kUnsupported,
                   "tensor '{}' has type {:.40}; in safetensors F32, F16 and BF16 are supported",
                   name, tensor->dtype);
}

void Safetensors::Evict(std::span<const std::byte> range) const {
  for (const MappedFile& map : maps_) {
    std::span<const std::byte> bytes = map.contents();
    if (range.data() >= bytes.data() && range.data() < bytes.data() + bytes.size()) {
      map.Evict(
          range.first(std::min<size_t>(range.size(), bytes.data() + bytes.size() - range.data())));
      return;
    }
  }
}

}  // namespace quire::model
