// The quantized blocks of GGUF files, byte for byte (ggml's formats as the GGUF specification and
// gguf-py define them), and what a kernel needs to know about each.
//
// Every format is the same idea: a value is scale * (code - offset) + min, where `code` is a small
// integer and scale and min are shared by a sub-block of 16 or 32 values. QuantTraits says which of
// these parts a type has; UnpackBlock (dequantize.h) takes a block apart into them.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace quire::kernels {

using F16Bits = uint16_t;  // IEEE binary16

struct BlockQ8_0 {
  F16Bits d;
  int8_t qs[32];
};
struct BlockQ4_0 {
  F16Bits d;
  uint8_t qs[16];  // value i: low nibble of qs[i], value 16 + i: high nibble
};
struct BlockQ4_1 {
  F16Bits d;
  F16Bits m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  F16Bits d;
  uint8_t qh[4];  // bit i: the fifth bit of value i
  uint8_t qs[16];
};
struct BlockQ5_1 {
  F16Bits d;
  F16Bits m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockIQ4_NL {
  F16Bits d;
  uint8_t qs[16];  // indices into kIq4NlValues
};

// Super-blocks of 256 values.
inline constexpr int kSuperBlock = 256;

struct BlockQ2_K {
  uint8_t scales[16];  // per 16 values: low nibble scale, high nibble min
  uint8_t qs[64];      // per half of 128: 32 bytes, four 2-bit planes of 32 values each
  F16Bits d;
  F16Bits dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];   // bit j of byte i: the third bit of value 32 j + i
  uint8_t qs[64];      // as in Q2_K
  uint8_t scales[12];  // sixteen 6-bit scales, biased by 32
  F16Bits d;
};
struct BlockQ4_K {
  F16Bits d;
  F16Bits dmin;
  uint8_t scales[12];  // eight 6-bit scales and eight 6-bit mins
  uint8_t qs[128];     // per 64 values: 32 bytes, low nibbles first
};
struct BlockQ5_K {
  F16Bits d;
  F16Bits dmin;
  uint8_t scales[12];
  uint8_t qh[32];  // bit j of byte i: the fifth bit of value 32 j + i
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];    // per half of 128: 64 bytes of low nibbles
  uint8_t qh[64];     // per half: 32 bytes, four 2-bit planes
  int8_t scales[16];  // per 16 values
  F16Bits d;
};

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

// The non-linear 4-bit codebook of IQ4_NL.
inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

enum class CodeKind : uint8_t {
  kSigned,    // int8 codes, no offset
  kUnsigned,  // uint8 codes up to max_code, minus offset
};
enum class MinKind : uint8_t { kNone, kPerSubBlock };

// What a value of a quantized type is made of.
struct QuantTraits {
  int sub_block;  // values that share a scale: 16 or 32
  CodeKind codes;
  int max_code;
  int offset;
  MinKind mins;
};

constexpr bool IsQuantized(DType type) {
  return Traits(type).block_elements > 1;
}

// Undefined for F32, F16 and BF16.
constexpr QuantTraits QuantTraitsOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {32, CodeKind::kUnsigned, 15, 8, MinKind::kNone};
    case DType::kQ4_1:
    case DType::kQ4_K:
      return {32, CodeKind::kUnsigned, 15, 0, MinKind::kPerSubBlock};
    case DType::kQ5_0:
      return {32, CodeKind::kUnsigned, 31, 16, MinKind::kNone};
    case DType::kQ5_1:
    case DType::kQ5_K:
      return {32, CodeKind::kUnsigned, 31, 0, MinKind::kPerSubBlock};
    case DType::kQ2_K:
      return {16, CodeKind::kUnsigned, 3, 0, MinKind::kPerSubBlock};
    case DType::kQ3_K:
      return {16, CodeKind::kUnsigned, 7, 4, MinKind::kNone};
    case DType::kQ6_K:
      return {16, CodeKind::kUnsigned, 63, 32, MinKind::kNone};
    default:
      return {32, CodeKind::kSigned, 127, 0, MinKind::kNone};
  }
}

}  // namespace quire::kernels
