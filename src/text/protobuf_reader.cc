#include "text/protobuf_reader.h"

namespace quire::text {

std::optional<ProtobufReader::Field> ProtobufReader::Next() {
  if (rest_.empty() || damaged_) return std::nullopt;
  Field field;
  const std::optional<uint64_t> tag = Varint();
  if (tag) {
    field.number = *tag >> 3;
    field.wire = static_cast<Wire>(*tag & 7);
  }
  if (!tag || field.number == 0 || !ReadValue(field)) {
    damaged_ = true;
    return std::nullopt;
  }
  return field;
}

bool ProtobufReader::ReadValue(Field& field) {
  std::optional<uint64_t> integer;
  switch (field.wire) {
    case Wire::kVarint:
      integer = Varint();
      break;
    case Wire::kFixed64:
      integer = Fixed(8);
      break;
    case Wire::kFixed32:
      integer = Fixed(4);
      break;
    case Wire::kBytes: {
      const std::optional<std::string_view> bytes = Bytes();
      field.bytes = bytes.value_or("");
      return bytes.has_value();
    }
    default:
      return false;  // groups, which no current writer makes
  }
  field.integer = integer.value_or(0);
  return integer.has_value();
}

std::optional<uint64_t> ProtobufReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<uint64_t> ProtobufReader::Fixed(size_t bytes) {
  if (rest_.size() < bytes) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
  }
  rest_.remove_prefix(bytes);
  return value;
}

std::optional<std::string_view> ProtobufReader::Bytes() {
  const std::optional<uint64_t> size = Varint();
  if (!size || *size > rest_.size()) return std::nullopt;
  const std::string_view bytes = rest_.substr(0, *size);
  rest_.remove_prefix(*size);
  return bytes;
}

}  // namespace quire::text
