// ProtobufReader: walks the fields of one protocol-buffer message in memory. Every length is
// checked against the message; nothing is copied or allocated. Format:
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace quire::text {

class ProtobufReader {
 public:
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  struct Field {
    uint64_t number = 0;
    Wire wire = Wire::kVarint;
    uint64_t integer = 0;    // of a varint or a fixed number
    std::string_view bytes;  // of a string, bytes or message field

    // A fixed 32-bit field as the float it holds.
    std::optional<float> AsFloat() const {
      if (wire != Wire::kFixed32) return std::nullopt;
      const uint32_t bits = static_cast<uint32_t>(integer);
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
  };

  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  // The next field; nullopt at the end of the message, or where it is damaged.
  std::optional<Field> Next();
  bool damaged() const { return damaged_; }

 private:
  std::optional<uint64_t> Varint();
  std::optional<uint64_t> Fixed(size_t bytes);
  std::optional<std::string_view> Bytes();
  bool ReadValue(Field& field);

  std::string_view rest_;
  bool damaged_ = false;
};

}  // namespace quire::text
