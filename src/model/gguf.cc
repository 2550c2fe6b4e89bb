#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>

namespace quire::model {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr int kMaxShards = 1000;
// The least that a metadata pair and a directory entry can take; bounds the counts of the header.
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

struct TypeName {
  uint32_t id;
  std::string_view name;
};
// ggml's other tensor types: named so that a refusal can say what it met.
constexpr TypeName kForeignTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},
    {27, "I64"},   {28, "F64"},   {29, "IQ1_M"},   {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"},
};

std::string SupportedTypes() {
  std::string names;
  for (const DTypeTraits& traits : kDTypeTraits) {
    if (!names.empty()) names += ' ';
    names += traits.name;
  }
  return names;
}

// Bytes of one element; 0 for strings, whose length varies.
uint64_t ElementBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

std::optional<int64_t> IntegerAt(const GgufValue& value, uint64_t index) {
  const std::byte* data = value.data.data() + index * ElementBytes(value.type);
  switch (value.type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return Load<uint8_t>(data);
    case GgufType::kI8:
      return Load<int8_t>(data);
    case GgufType::kU16:
      return Load<uint16_t>(data);
    case GgufType::kI16:
      return Load<int16_t>(data);
    case GgufType::kU32:
      return Load<uint32_t>(data);
    case GgufType::kI32:
      return Load<int32_t>(data);
    case GgufType::kI64:
      return Load<int64_t>(data);
    case GgufType::kU64: {
      uint64_t wide = Load<uint64_t>(data);
      if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(wide);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(const GgufValue& value, uint64_t index) {
  const std::byte* data = value.data.data() + index * ElementBytes(value.type);
  if (value.type == GgufType::kF32) return Load<float>(data);
  if (value.type == GgufType::kF64) return Load<double>(data);
  std::optional<int64_t> integer = IntegerAt(value, index);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

// A string whose bounds were checked when the file was opened; moves `data` behind it.
std::string_view TakeString(std::span<const std::byte>& data) {
  uint64_t length = Load<uint64_t>(data.data());
  std::string_view text(reinterpret_cast<const char*>(data.data()) + 8, length);
  data = data.subspan(8 + length);
  return text;
}

Error Truncated(std::string_view what) {
  return MakeError(ErrorKind::kInvalid, "the GGUF file ends inside {}; it is truncated or corrupt",
                   what);
}

}  // namespace

// A cursor over the bytes of one file that never passes their end.
class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> bytes) : rest_(bytes), total_(bytes.size()) {}

  uint64_t remaining() const { return rest_.size(); }
  uint64_t position() const { return total_ - rest_.size(); }

  template <typename T>
  Result<T> Read(std::string_view what) {
    if (rest_.size() < sizeof(T)) return Truncated(what);
    T value = Load<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  Result<std::string_view> ReadString(std::string_view what) {
    if (rest_.size() < 8 || Load<uint64_t>(rest_.data()) > rest_.size() - 8) return Truncated(what);
    return TakeString(rest_);
  }

  Result<std::span<const std::byte>> ReadBytes(uint64_t bytes, std::string_view what) {
    if (bytes > rest_.size()) return Truncated(what);
    std::span<const std::byte> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }

  // `count` elements of `type`: all of them must be there.
  Result<std::span<const std::byte>> ReadElements(GgufType type, uint64_t count,
                                                  std::string_view what) {
    if (type != GgufType::kString) {
      if (count > rest_.size()) return Truncated(what);
      return ReadBytes(count * ElementBytes(type), what);
    }
    std::span<const std::byte> start = rest_;
    for (uint64_t i = 0; i < count; ++i) QUIRE_RETURN_IF_ERROR(ReadString(what));
    return start.first(start.size() - rest_.size());
  }

 private:
  std::span<const std::byte> rest_;
  uint64_t total_;
};

namespace {

Result<GgufType> ReadType(GgufReader& reader, std::string_view key) {
  QUIRE_ASSIGN_OR_RETURN(uint32_t raw, reader.Read<uint32_t>("a metadata value"));
  if (raw > static_cast<uint32_t>(GgufType::kF64)) {
    return MakeError(
        ErrorKind::kInvalid,
        "metadata '{:.100}' has value type {}, and GGUF defines 0 to 12; the file is corrupt", key,
        raw);
  }
  return static_cast<GgufType>(raw);
}

Result<GgufValue> ReadValue(GgufReader& reader, std::string_view key) {
  GgufValue value;
  QUIRE_ASSIGN_OR_RETURN(value.type, ReadType(reader, key));
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    QUIRE_ASSIGN_OR_RETURN(value.type, ReadType(reader, key));
    if (value.type == GgufType::kArray) {
      return MakeError(
          ErrorKind::kUnsupported,
          "metadata '{:.100}' is an array of arrays; only arrays of scalars and strings are "
          "supported",
          key);
    }
    QUIRE_ASSIGN_OR_RETURN(value.count, reader.Read<uint64_t>("a metadata array"));
  }
  QUIRE_ASSIGN_OR_RETURN(value.data,
                         reader.ReadElements(value.type, value.count, "a metadata value"));
  return value;
}

// The extents of a tensor, with a product that fits into int64.
Status ReadExtents(GgufReader& reader, GgufTensor& tensor) {
  QUIRE_ASSIGN_OR_RETURN(uint32_t dimensions, reader.Read<uint32_t>("the tensor directory"));
  if (dimensions < 1 || dimensions > tensor.extents.size()) {
    return MakeError(ErrorKind::kInvalid,
                     "tensor '{:.100}' has {} dimensions, and 1 to 4 are possible", tensor.name,
                     dimensions);
  }
  tensor.dimensions = static_cast<int>(dimensions);
  int64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    QUIRE_ASSIGN_OR_RETURN(uint64_t extent, reader.Read<uint64_t>("the tensor directory"));
    if (extent < 1 || extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(extent), &elements)) {
      return MakeError(ErrorKind::kInvalid, "tensor '{:.100}' has an impossible extent of {}",
                       tensor.name, extent);
    }
    tensor.extents[i] = static_cast<int64_t>(extent);
  }
  return Ok{};
}

// Finds the bytes of `tensor` at `offset` of the data section.
Status PlaceTensor(std::span<const std::byte> section, uint64_t offset, GgufTensor& tensor) {
  if (offset > section.size()) {
    return MakeError(ErrorKind::kInvalid,
                     "tensor '{:.100}' starts at byte {} of {} bytes of tensor data; the file is "
                     "truncated or corrupt",
                     tensor.name, offset, section.size());
  }
  std::optional<DType> type = DTypeFromGgufId(tensor.type_id);
  if (!type) return Ok{};
  const DTypeTraits& traits = Traits(*type);
  if (tensor.cols() % traits.block_elements != 0) {
    return MakeError(ErrorKind::kInvalid,
                     "tensor '{:.100}' has rows of {} values, no multiple of {}'s {}", tensor.name,
                     tensor.cols(), traits.name, traits.block_elements);
  }
  // rows * cols fits into int64; a block of one element has at most 4 bytes, a larger one less than
  // 2 bytes per element, so the product below fits into 128 bits and is compared there.
  unsigned __int128 bytes = static_cast<unsigned __int128>(tensor.rows()) *
                            static_cast<uint64_t>(tensor.cols() / traits.block_elements) *
                            static_cast<uint64_t>(traits.block_bytes);
  if (bytes > section.size() - offset) {
    return MakeError(ErrorKind::kInvalid,
                     "tensor '{:.100}' ends beyond the file; the file is truncated or corrupt",
                     tensor.name);
  }
  tensor.data = section.subspan(offset, static_cast<size_t>(bytes));
  return Ok{};
}

// Bytes that belong to two tensors would let a small file describe a large model.
Status CheckOverlap(std::span<const GgufTensor> tensors) {
  std::vector<const GgufTensor*> order;
  order.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) {
    if (!tensor.data.empty()) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->data.data() < b->data.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->data.data() + order[i - 1]->data.size() > order[i]->data.data()) {
      return MakeError(ErrorKind::kInvalid,
                       "tensors '{:.100}' and '{:.100}' overlap; the file is corrupt",
                       order[i - 1]->name, order[i]->name);
    }
  }
  return Ok{};
}

Result<uint64_t> Alignment(const GgufFile& file) {
  if (file.Find("general.alignment") == nullptr) return kDefaultAlignment;
  std::optional<int64_t> alignment = file.GetInt("general.alignment");
  if (!alignment || *alignment < 8 || *alignment > static_cast<int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return MakeError(
        ErrorKind::kInvalid,
        "metadata 'general.alignment' is {}, and a power of two from 8 to {} is needed",
        alignment ? std::to_string(*alignment) : "no integer", kMaxAlignment);
  }
  return static_cast<uint64_t>(*alignment);
}

}  // namespace

std::string_view Name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::string GgufTensorTypeName(uint32_t type_id) {
  if (std::optional<DType> type = DTypeFromGgufId(type_id)) return std::string(Name(*type));
  for (const TypeName& foreign : kForeignTypes) {
    if (foreign.id == type_id) return std::string(foreign.name);
  }
  return fmt::format("type {}", type_id);
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  GgufFile file;
  QUIRE_RETURN_IF_ERROR(file.AddShard(bytes));
  return file;
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  GgufFile file;
  Status parsed = file.AddShard(map.contents());
  if (!parsed.ok()) {
    return MakeError(parsed.error().kind, "cannot load '{}': {}", path, parsed.error().message);
  }
  file.maps_.push_back(std::move(map));
  QUIRE_RETURN_IF_ERROR(file.OpenOtherShards(path));
  return file;
}

Status GgufFile::OpenOtherShards(const std::string& path) {
  int64_t count = GetInt("split.count").value_or(0);
  if (count <= 1) return Ok{};
  std::string tail = fmt::format("-00001-of-{:05}.gguf", count);
  if (count > kMaxShards || GetInt("split.no").value_or(0) != 0 || !path.ends_with(tail)) {
    return MakeError(ErrorKind::kUsage,
                     "'{}' is part of a model split into {} files; give the first one, whose name "
                     "ends in '{}'",
                     path, count, tail);
  }
  std::string stem = path.substr(0, path.size() - tail.size());
  for (int64_t shard = 2; shard <= count; ++shard) {
    std::string name = fmt::format("{}-{:05}-of-{:05}.gguf", stem, shard, count);
    QUIRE_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(name));
    Status parsed = AddShard(map.contents());
    if (!parsed.ok()) {
      return MakeError(parsed.error().kind, "cannot load '{}': {}", name, parsed.error().message);
    }
    maps_.push_back(std::move(map));
  }
  std::optional<int64_t> expected = GetInt("split.tensors.count");
  if (expected && *expected != static_cast<int64_t>(tensors_.size())) {
    return MakeError(ErrorKind::kInvalid,
                     "'{}' and its other parts hold {} tensors, and 'split.tensors.count' says {}",
                     path, tensors_.size(), *expected);
  }
  return Ok{};
}

// The metadata of further shards describes only themselves: parsed, then dropped.
Status GgufFile::AddShard(std::span<const std::byte> bytes) {
  GgufReader reader(bytes);
  if (shards_ == 0) {
    QUIRE_RETURN_IF_ERROR(ParseHeader(reader));
  } else {
    GgufFile other;
    QUIRE_RETURN_IF_ERROR(other.AddShard(bytes));
    for (const GgufTensor& tensor : other.tensors_) {
      if (!tensor_by_name_.emplace(tensor.name, tensors_.size()).second) {
        return MakeError(ErrorKind::kInvalid, "tensor '{:.100}' appears in two parts of the model",
                         tensor.name);
      }
      tensors_.push_back(tensor);
    }
  }
  file_bytes_ += bytes.size();
  ++shards_;
  return Ok{};
}

Status GgufFile::ParseHeader(GgufReader& reader) {
  QUIRE_ASSIGN_OR_RETURN(uint32_t magic, reader.Read<uint32_t>("its header"));
  if (magic != 0x46554747) {  // "GGUF"
    return MakeError(ErrorKind::kInvalid,
                     "this is no GGUF file: it starts with 0x{:08x}, not with \"GGUF\"", magic);
  }
  QUIRE_ASSIGN_OR_RETURN(version_, reader.Read<uint32_t>("its header"));
  if (version_ != 2 && version_ != 3) {
    bool swapped = version_ == 0x02000000 || version_ == 0x03000000;
    return MakeError(ErrorKind::kUnsupported,
                     "GGUF version {} found{}; versions 2 and 3, little endian, are supported",
                     swapped ? version_ >> 24 : version_, swapped ? " in big endian" : "");
  }
  QUIRE_ASSIGN_OR_RETURN(uint64_t tensors, reader.Read<uint64_t>("its header"));
  QUIRE_ASSIGN_OR_RETURN(uint64_t pairs, reader.Read<uint64_t>("its header"));
  QUIRE_RETURN_IF_ERROR(ParseMetadata(reader, pairs));
  return ParseDirectory(reader, tensors);
}

Status GgufFile::ParseMetadata(GgufReader& reader, uint64_t count) {
  if (count > reader.remaining() / kMinPairBytes) return Truncated("its metadata");
  for (uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    QUIRE_ASSIGN_OR_RETURN(entry.key, reader.ReadString("its metadata"));
    QUIRE_ASSIGN_OR_RETURN(entry.value, ReadValue(reader, entry.key));
    if (!entry_by_key_.emplace(entry.key, entries_.size()).second) {
      return MakeError(ErrorKind::kInvalid, "metadata '{:.100}' appears twice", entry.key);
    }
    entries_.push_back(entry);
  }
  return Ok{};
}

Status GgufFile::ParseDirectory(GgufReader& reader, uint64_t count) {
  if (count > reader.remaining() / kMinTensorBytes) return Truncated("the tensor directory");
  QUIRE_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment(*this));
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    QUIRE_ASSIGN_OR_RETURN(tensor.name, reader.ReadString("the tensor directory"));
    QUIRE_RETURN_IF_ERROR(ReadExtents(reader, tensor));
    QUIRE_ASSIGN_OR_RETURN(tensor.type_id, reader.Read<uint32_t>("the tensor directory"));
    QUIRE_ASSIGN_OR_RETURN(uint64_t offset, reader.Read<uint64_t>("the tensor directory"));
    if (offset % alignment != 0) {
      return MakeError(ErrorKind::kInvalid, "tensor '{:.100}' starts at byte {}, no multiple of {}",
                       tensor.name, offset, alignment);
    }
    if (!tensor_by_name_.emplace(tensor.name, tensors_.size()).second) {
      return MakeError(ErrorKind::kInvalid, "tensor '{:.100}' appears twice", tensor.name);
    }
    tensors_.push_back(tensor);
    offsets.push_back(offset);
  }
  if (count == 0) return Ok{};
  uint64_t padding = (alignment - reader.position() % alignment) % alignment;
  QUIRE_RETURN_IF_ERROR(reader.ReadBytes(padding, "the padding before its tensors"));
  QUIRE_ASSIGN_OR_RETURN(std::span<const std::byte> section,
                         reader.ReadBytes(reader.remaining(), "its tensors"));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(PlaceTensor(section, offsets[i], tensors_[i]));
  }
  return CheckOverlap(tensors_);
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  auto found = entry_by_key_.find(key);
  return found == entry_by_key_.end() ? nullptr : &entries_[found->second].value;
}

std::optional<int64_t> GgufFile::GetInt(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || value->is_array) return std::nullopt;
  return IntegerAt(*value, 0);
}

std::optional<double> GgufFile::GetFloat(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || value->is_array) return std::nullopt;
  return NumberAt(*value, 0);
}

std::optional<bool> GgufFile::GetBool(std::string_view key) const {
  std::optional<int64_t> value = GetInt(key);
  if (!value) return std::nullopt;
  return *value != 0;
}

std::optional<std::string_view> GgufFile::GetString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || value->is_array || value->type != GgufType::kString) return std::nullopt;
  std::span<const std::byte> data = value->data;
  return TakeString(data);
}

std::optional<std::vector<int64_t>> GgufFile::GetIntArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || !value->is_array || value->type == GgufType::kString) return std::nullopt;
  std::vector<int64_t> result;
  result.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    std::optional<int64_t> element = IntegerAt(*value, i);
    if (!element) return std::nullopt;
    result.push_back(*element);
  }
  return result;
}

std::optional<std::vector<float>> GgufFile::GetFloatArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || !value->is_array || value->type == GgufType::kString) return std::nullopt;
  std::vector<float> result;
  result.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    std::optional<double> element = NumberAt(*value, i);
    if (!element) return std::nullopt;
    result.push_back(static_cast<float>(*element));
  }
  return result;
}

std::optional<std::vector<std::string_view>> GgufFile::GetStringArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || !value->is_array || value->type != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> result;
  result.reserve(value->count);
  std::span<const std::byte> data = value->data;
  for (uint64_t i = 0; i < value->count; ++i) result.push_back(TakeString(data));
  return result;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  auto found = tensor_by_name_.find(name);
  return found == tensor_by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<StoredTensor> GgufFile::Tensor(std::string_view name) const {
  const GgufTensor* tensor = FindTensor(name);
  if (tensor == nullptr) {
    return MakeError(ErrorKind::kNotFound, "the model has no tensor '{:.100}'", name);
  }
  std::optional<DType> type = DTypeFromGgufId(tensor->type_id);
  if (!type) {
    return MakeError(ErrorKind::kUnsupported,
                     "tensor '{:.100}' has type {}; the supported types are {}", name,
                     GgufTensorTypeName(tensor->type_id), SupportedTypes());
  }
  return StoredTensor{*type, tensor->rows(), tensor->cols(), tensor->data.data()};
}

void GgufFile::Evict(std::span<const std::byte> range) const {
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
