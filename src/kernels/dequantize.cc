#include "kernels/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "kernels/half.h"

namespace quire::kernels {
namespace {

template <typename Block>
Block Load(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof(block));
  return block;
}

// The 32 values of a block of nibbles; bit i of `high` is the fifth bit of value i.
void UnpackNibbles(const uint8_t* qs, uint32_t high, int16_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<int16_t>((qs[i] & 15) | (((high >> i) & 1) << 4));
    codes[16 + i] = static_cast<int16_t>((qs[i] >> 4) | (((high >> (16 + i)) & 1) << 4));
  }
}

void Unpack(const BlockQ8_0& block, UnpackedBlock& out) {
  out.scales[0] = F32FromF16(block.d);
  for (int i = 0; i < 32; ++i) out.codes[i] = block.qs[i];
}

void Unpack(const BlockQ4_0& block, UnpackedBlock& out) {
  out.scales[0] = F32FromF16(block.d);
  UnpackNibbles(block.qs, 0, out.codes);
}

void Unpack(const BlockQ4_1& block, UnpackedBlock& out) {
  out.scales[0] = F32FromF16(block.d);
  out.mins[0] = F32FromF16(block.m);
  UnpackNibbles(block.qs, 0, out.codes);
}

uint32_t HighBits(const uint8_t* qh) {
  return qh[0] | (uint32_t{qh[1]} << 8) | (uint32_t{qh[2]} << 16) | (uint32_t{qh[3]} << 24);
}

void Unpack(const BlockQ5_0& block, UnpackedBlock& out) {
  out.scales[0] = F32FromF16(block.d);
  UnpackNibbles(block.qs, HighBits(block.qh), out.codes);
}

void Unpack(const BlockQ5_1& block, UnpackedBlock& out) {
  out.scales[0] = F32FromF16(block.d);
  out.mins[0] = F32FromF16(block.m);
  UnpackNibbles(block.qs, HighBits(block.qh), out.codes);
}

void Unpack(const BlockIQ4_NL& block, UnpackedBlock& out) {
  out.scales[0] = F32FromF16(block.d);
  for (int i = 0; i < 16; ++i) {
    out.codes[i] = kIq4NlValues[block.qs[i] & 15];
    out.codes[16 + i] = kIq4NlValues[block.qs[i] >> 4];
  }
}

// Value i of a super-block in four 2-bit planes per half of 128 values.
int TwoBits(const uint8_t* qs, int i) {
  return (qs[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
}

void Unpack(const BlockQ2_K& block, UnpackedBlock& out) {
  const float d = F32FromF16(block.d);
  const float dmin = F32FromF16(block.dmin);
  for (int j = 0; j < 16; ++j) {
    out.scales[j] = d * static_cast<float>(block.scales[j] & 15);
    out.mins[j] = -(dmin * static_cast<float>(block.scales[j] >> 4));
  }
  for (int i = 0; i < kSuperBlock; ++i) out.codes[i] = static_cast<int16_t>(TwoBits(block.qs, i));
}

void Unpack(const BlockQ3_K& block, UnpackedBlock& out) {
  const float d = F32FromF16(block.d);
  for (int j = 0; j < 16; ++j) {
    const int low = (block.scales[j % 8] >> (4 * (j / 8))) & 15;
    const int high = (block.scales[8 + j % 4] >> (2 * (j / 4))) & 3;
    out.scales[j] = d * static_cast<float>((low | (high << 4)) - 32);
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const int high = (block.hmask[i % 32] >> (i / 32)) & 1;
    out.codes[i] = static_cast<int16_t>(TwoBits(block.qs, i) | (high << 2));
  }
}

// Eight 6-bit scales and mins in 12 bytes, as Q4_K and Q5_K store them.
void UnpackScales(const uint8_t* packed, float d, float dmin, UnpackedBlock& out) {
  for (int j = 0; j < 8; ++j) {
    int scale = 0;
    int min = 0;
    if (j < 4) {
      scale = packed[j] & 63;
      min = packed[j + 4] & 63;
    } else {
      scale = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4);
      min = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
    }
    out.scales[j] = d * static_cast<float>(scale);
    out.mins[j] = -(dmin * static_cast<float>(min));
  }
}

void Unpack(const BlockQ4_K& block, UnpackedBlock& out) {
  UnpackScales(block.scales, F32FromF16(block.d), F32FromF16(block.dmin), out);
  for (int i = 0; i < kSuperBlock; ++i) {
    out.codes[i] = (block.qs[i / 64 * 32 + i % 32] >> (4 * (i % 64 / 32))) & 15;
  }
}

void Unpack(const BlockQ5_K& block, UnpackedBlock& out) {
  UnpackScales(block.scales, F32FromF16(block.d), F32FromF16(block.dmin), out);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int low = (block.qs[i / 64 * 32 + i % 32] >> (4 * (i % 64 / 32))) & 15;
    const int high = (block.qh[i % 32] >> (i / 32)) & 1;
    out.codes[i] = static_cast<int16_t>(low | (high << 4));
  }
}

void Unpack(const BlockQ6_K& block, UnpackedBlock& out) {
  const float d = F32FromF16(block.d);
  for (int j = 0; j < 16; ++j) out.scales[j] = d * static_cast<float>(block.scales[j]);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int low = (block.ql[i / 128 * 64 + i % 64] >> (4 * (i % 128 / 64))) & 15;
    out.codes[i] = static_cast<int16_t>(low | (TwoBits(block.qh, i) << 4));
  }
}

void DequantizeBlock(DType type, const std::byte* block, float* out) {
  UnpackedBlock unpacked;
  UnpackBlock(type, block, unpacked);
  const QuantTraits traits = QuantTraitsOf(type);
  for (int i = 0; i < Traits(type).block_elements; ++i) {
    const int sub = i / traits.sub_block;
    const float value =
        unpacked.scales[sub] * static_cast<float>(unpacked.codes[i] - traits.offset);
    out[i] = traits.mins == MinKind::kNone ? value : value + unpacked.mins[sub];
  }
}

}  // namespace

void UnpackBlock(DType type, const std::byte* block, UnpackedBlock& unpacked) {
  switch (type) {
    case DType::kQ8_0:
      return Unpack(Load<BlockQ8_0>(block), unpacked);
    case DType::kQ4_0:
      return Unpack(Load<BlockQ4_0>(block), unpacked);
    case DType::kQ4_1:
      return Unpack(Load<BlockQ4_1>(block), unpacked);
    case DType::kQ5_0:
      return Unpack(Load<BlockQ5_0>(block), unpacked);
    case DType::kQ5_1:
      return Unpack(Load<BlockQ5_1>(block), unpacked);
    case DType::kQ2_K:
      return Unpack(Load<BlockQ2_K>(block), unpacked);
    case DType::kQ3_K:
      return Unpack(Load<BlockQ3_K>(block), unpacked);
    case DType::kQ4_K:
      return Unpack(Load<BlockQ4_K>(block), unpacked);
    case DType::kQ5_K:
      return Unpack(Load<BlockQ5_K>(block), unpacked);
    case DType::kQ6_K:
      return Unpack(Load<BlockQ6_K>(block), unpacked);
    case DType::kIQ4_NL:
      return Unpack(Load<BlockIQ4_NL>(block), unpacked);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  base::CheckFailed(__FILE__, __LINE__, "UnpackBlock of a type that has no blocks");
}

void DequantizeRow(DType type, const std::byte* row, int64_t cols, float* out) {
  const DTypeTraits& traits = Traits(type);
  if (type == DType::kF32) {
    std::memcpy(out, row, static_cast<size_t>(cols) * sizeof(float));
    return;
  }
  if (type == DType::kF16 || type == DType::kBF16) {
    for (int64_t i = 0; i < cols; ++i) {
      const uint16_t bits = Load<uint16_t>(row + 2 * i);
      out[i] = type == DType::kF16 ? F32FromF16(bits) : F32FromBf16(bits);
    }
    return;
  }
  QUIRE_CHECK_EQ(cols % traits.block_elements, 0);
  for (int64_t block = 0; block < cols / traits.block_elements; ++block) {
    DequantizeBlock(type, row + block * traits.block_bytes, out + block * traits.block_elements);
  }
}

}  // namespace quire::kernels
