// Decoders for x86: one panel block of a quantized type becomes plain 8-bit codes and f32 scales,
// in the layout that the tile kernels read. Included by matmul_avx2.cc and matmul_avx512.cc, each
// inside its target region and with its own QUIRE_MATMUL_NAMESPACE.
//
// Layout of what is decoded, `g` counting groups of four columns and `s` sub-blocks:
//   codes        [g][16 rows][4 columns]
//   scales, mins [s][16 rows]
#pragma once

#ifndef QUIRE_MATMUL_NAMESPACE
#error "include this header inside a target region, with a namespace for it"
#endif

namespace quire::kernels::QUIRE_MATMUL_NAMESPACE {

inline constexpr int64_t kChunk = 1024;   // columns decoded at once: the codes stay in the L1 cache
inline constexpr int kAheadBytes = 4096;  // how far a single pass over weights prefetches
inline constexpr int kGroupBytes = 4 * kPanelRows;

// One value (or four bytes) of each of the 16 rows.
struct Lanes {
  __m256i low;   // rows 0..7
  __m256i high;  // rows 8..15
};
struct FloatLanes {
  __m256 low;
  __m256 high;
};

inline Lanes LoadLanes(const void* p) {
  const auto* words = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
// LoadLanes from packed weights. The hardware prefetcher alone leaves a third of the bandwidth
// unused; one software prefetch per cache line read keeps the stream busy. Reaching into the next
// panel is wanted, and past the end of a matrix a prefetch does nothing.
inline Lanes LoadPacked(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p) + kAheadBytes, _MM_HINT_T0);
  return LoadLanes(p);
}
inline void StoreLanes(void* p, Lanes v) {
  auto* words = static_cast<__m256i*>(p);
  _mm256_storeu_si256(words, v.low);
  _mm256_storeu_si256(words + 1, v.high);
}
inline FloatLanes LoadFloats(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void StoreFloats(float* p, FloatLanes v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
// Sixteen f16 values.
inline FloatLanes LoadHalves(const void* p) {
  const auto* words = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(words)), _mm256_cvtph_ps(_mm_loadu_si128(words + 1))};
}

// (v >> shift) & mask in every byte; the mask hides what crosses a byte.
inline Lanes ShiftMask(Lanes v, int shift, int mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(_mm256_srli_epi16(v.low, shift), m),
          _mm256_and_si256(_mm256_srli_epi16(v.high, shift), m)};
}
// v << shift; the caller knows that no bit leaves its byte.
inline Lanes ShiftLeft(Lanes v, int shift) {
  return {_mm256_slli_epi16(v.low, shift), _mm256_slli_epi16(v.high, shift)};
}
inline Lanes Or(Lanes a, Lanes b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

inline FloatLanes Multiply(FloatLanes a, FloatLanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline FloatLanes Negate(FloatLanes v) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(v.low, sign), _mm256_xor_ps(v.high, sign)};
}
// Byte `index` of every row's four, minus bias, as f32.
inline FloatLanes ByteToFloat(Lanes v, int index, int bias) {
  const __m256i mask = _mm256_set1_epi32(255);
  const __m256i b = _mm256_set1_epi32(bias);
  auto convert = [&](__m256i x) {
    x = _mm256_and_si256(_mm256_srli_epi32(x, 8 * index), mask);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(x, b));
  };
  return {convert(v.low), convert(v.high)};
}

struct Decoded {
  alignas(64) uint8_t codes[kChunk * kPanelRows];
  alignas(64) float scales[kChunk / 16 * kPanelRows];
  union {
    alignas(64) float mins[kChunk / 16 * kPanelRows];
    // Signed codes: the sum of |code| over a sub-block's negative codes (see MultiplySigned).
    alignas(64) int32_t negatives[kChunk / 16 * kPanelRows];
  };
};

// Where one block's parts go.
struct Target {
  uint8_t* codes;
  float* scales;
  float* mins;
};

inline void StoreGroup(const Target& to, int group, Lanes codes) {
  StoreLanes(to.codes + group * kGroupBytes, codes);
}

// Bits 4 g .. 4 g + 3 of each row's 32 become the value 16 in the bytes 0..3 where they are set.
inline Lanes FifthBits(Lanes bits, int group) {
  const int byte = group / 2;
  const __m256i spread =
      _mm256_add_epi8(_mm256_set1_epi8(static_cast<char>(byte)),
                      _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0,
                                       0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  const __m256i select =
      _mm256_set1_epi32(group % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  auto extract = [&](__m256i v) {
    const __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(v, spread), select);
    return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, select), _mm256_set1_epi8(16));
  };
  return {extract(bits.low), extract(bits.high)};
}

// The sum of |code| over the negative codes of eight groups.
inline Lanes SumNegatives(const std::byte* codes) {
  Lanes sum = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  const __m256i ones = _mm256_set1_epi8(1);
  auto add = [&](__m256i total, __m256i v) {
    const __m256i negative =
        _mm256_and_si256(_mm256_abs_epi8(v), _mm256_cmpgt_epi8(_mm256_setzero_si256(), v));
    return _mm256_add_epi16(total, _mm256_maddubs_epi16(negative, ones));
  };
  for (int g = 0; g < 8; ++g) {
    const Lanes v = LoadPacked(codes + g * kGroupBytes);
    sum.low = add(sum.low, v.low);
    sum.high = add(sum.high, v.high);
  }
  const __m256i words = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(sum.low, words), _mm256_madd_epi16(sum.high, words)};
}

// A block of 32 nibbles with optional fifth bits: Q4_0, Q4_1, Q5_0, Q5_1.
enum class Fifth { kAbsent, kPresent };
template <MinKind kMins, Fifth kFifth>
inline void DecodeNibbleBlock(const std::byte* block, const Target& to) {
  StoreFloats(to.scales, LoadHalves(block));
  block += 2 * kPanelRows;
  if constexpr (kMins == MinKind::kPerSubBlock) {
    StoreFloats(to.mins, LoadHalves(block));
    block += 2 * kPanelRows;
  }
  Lanes bits = {};
  if constexpr (kFifth == Fifth::kPresent) {
    bits = LoadPacked(block);
    block += kGroupBytes;
  }
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const Lanes bytes = LoadPacked(block + g * kGroupBytes);
    Lanes low = ShiftMask(bytes, 0, 15);
    Lanes high = ShiftMask(bytes, 4, 15);
    if constexpr (kFifth == Fifth::kPresent) {
      low = Or(low, FifthBits(bits, g));
      high = Or(high, FifthBits(bits, g + 4));
    }
    StoreGroup(to, g, low);
    StoreGroup(to, g + 4, high);
  }
}

inline Lanes LookUpIq4(Lanes indices) {
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4NlValues)));
  return {_mm256_shuffle_epi8(table, indices.low), _mm256_shuffle_epi8(table, indices.high)};
}

inline void DecodeIq4Nl(const std::byte* block, const Target& to) {
  StoreFloats(to.scales, LoadHalves(block));
  block += 2 * kPanelRows;
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const Lanes bytes = LoadPacked(block + g * kGroupBytes);
    StoreGroup(to, g, LookUpIq4(ShiftMask(bytes, 0, 15)));
    StoreGroup(to, g + 4, LookUpIq4(ShiftMask(bytes, 4, 15)));
  }
}

// Scale (and min) of sub-block 4 word + byte from the byte vectors `scales` and `mins`.
inline void StoreScales(const Target& to, int word, Lanes scales, FloatLanes d, int bias) {
#pragma GCC unroll 4
  for (int byte = 0; byte < 4; ++byte) {
    StoreFloats(to.scales + (4 * word + byte) * kPanelRows,
                Multiply(d, ByteToFloat(scales, byte, bias)));
  }
}
inline void StoreMins(const Target& to, int word, Lanes mins, FloatLanes dmin) {
#pragma GCC unroll 4
  for (int byte = 0; byte < 4; ++byte) {
    StoreFloats(to.mins + (4 * word + byte) * kPanelRows,
                Negate(Multiply(dmin, ByteToFloat(mins, byte, 0))));
  }
}

// The twelve bytes of 6-bit scales and mins of Q4_K and Q5_K.
inline void DecodeScales6(const std::byte* packed, FloatLanes d, FloatLanes dmin,
                          const Target& to) {
  const Lanes a = LoadLanes(packed);
  const Lanes b = LoadLanes(packed + kGroupBytes);
  const Lanes c = LoadLanes(packed + 2 * kGroupBytes);
  StoreScales(to, 0, ShiftMask(a, 0, 63), d, 0);
  StoreMins(to, 0, ShiftMask(b, 0, 63), dmin);
  StoreScales(to, 1, Or(ShiftMask(c, 0, 15), ShiftLeft(ShiftMask(a, 6, 3), 4)), d, 0);
  StoreMins(to, 1, Or(ShiftMask(c, 4, 15), ShiftLeft(ShiftMask(b, 6, 3), 4)), dmin);
}

template <Fifth kFifth>
inline void DecodeQ45K(const std::byte* block, const Target& to) {
  const FloatLanes d = LoadHalves(block);
  const FloatLanes dmin = LoadHalves(block + 2 * kPanelRows);
  DecodeScales6(block + 4 * kPanelRows, d, dmin, to);
  const std::byte* high = block + 16 * kPanelRows;
  const std::byte* qs = high + (kFifth == Fifth::kPresent ? 32 * kPanelRows : 0);
#pragma GCC unroll 4
  for (int pair = 0; pair < 4; ++pair) {
    for (int g = 0; g < 8; ++g) {
      const Lanes bytes = LoadPacked(qs + (8 * pair + g) * kGroupBytes);
      Lanes first = ShiftMask(bytes, 0, 15);
      Lanes second = ShiftMask(bytes, 4, 15);
      if constexpr (kFifth == Fifth::kPresent) {
        const Lanes bits = LoadLanes(high + g * kGroupBytes);
        first = Or(first, ShiftLeft(ShiftMask(bits, 2 * pair, 1), 4));
        second = Or(second, ShiftLeft(ShiftMask(bits, 2 * pair + 1, 1), 4));
      }
      StoreGroup(to, 16 * pair + g, first);
      StoreGroup(to, 16 * pair + 8 + g, second);
    }
  }
}

inline void DecodeQ2K(const std::byte* block, const Target& to) {
  const std::byte* qs = block + 16 * kPanelRows;
  const std::byte* tail = qs + 64 * kPanelRows;
  const FloatLanes d = LoadHalves(tail);
  const FloatLanes dmin = LoadHalves(tail + 2 * kPanelRows);
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word) {
    const Lanes bytes = LoadPacked(block + word * kGroupBytes);
    StoreScales(to, word, ShiftMask(bytes, 0, 15), d, 0);
    StoreMins(to, word, ShiftMask(bytes, 4, 15), dmin);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {  // i / 8: the half of 128 values
    const Lanes bytes = LoadPacked(qs + i * kGroupBytes);
#pragma GCC unroll 4
    for (int plane = 0; plane < 4; ++plane) {
      StoreGroup(to, i / 8 * 32 + plane * 8 + i % 8, ShiftMask(bytes, 2 * plane, 3));
    }
  }
}

inline void DecodeQ3K(const std::byte* block, const Target& to) {
  const std::byte* qs = block + 32 * kPanelRows;
  const std::byte* packed = qs + 64 * kPanelRows;
  const FloatLanes d = LoadHalves(packed + 12 * kPanelRows);
  const Lanes top = LoadLanes(packed + 2 * kGroupBytes);
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word) {
    const Lanes low = ShiftMask(LoadLanes(packed + word % 2 * kGroupBytes), word / 2 * 4, 15);
    StoreScales(to, word, Or(low, ShiftLeft(ShiftMask(top, 2 * word, 3), 4)), d, 32);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const Lanes bytes = LoadPacked(qs + i * kGroupBytes);
    const Lanes bits = LoadLanes(block + i % 8 * kGroupBytes);
#pragma GCC unroll 4
    for (int plane = 0; plane < 4; ++plane) {
      const Lanes high = ShiftLeft(ShiftMask(bits, i / 8 * 4 + plane, 1), 2);
      StoreGroup(to, i / 8 * 32 + plane * 8 + i % 8, Or(ShiftMask(bytes, 2 * plane, 3), high));
    }
  }
}

inline void DecodeQ6K(const std::byte* block, const Target& to) {
  const std::byte* qh = block + 128 * kPanelRows;
  const std::byte* packed = qh + 64 * kPanelRows;
  const FloatLanes d = LoadHalves(packed + 16 * kPanelRows);
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word) {  // signed bytes, read as unsigned ones biased by 128
    const Lanes bytes = LoadPacked(packed + word * kGroupBytes);
    const Lanes biased = {_mm256_xor_si256(bytes.low, flip), _mm256_xor_si256(bytes.high, flip)};
    StoreScales(to, word, biased, d, 128);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const int half = i / 8;
    const Lanes bits = LoadPacked(qh + i * kGroupBytes);
    const std::byte* words = block + (half * 16 + i % 8) * kGroupBytes;
    const Lanes nibbles[2] = {LoadPacked(words), LoadPacked(words + 8 * kGroupBytes)};
#pragma GCC unroll 4
    for (int plane = 0; plane < 4; ++plane) {
      const Lanes low = ShiftMask(nibbles[plane % 2], plane / 2 * 4, 15);
      const Lanes high = ShiftLeft(ShiftMask(bits, 2 * plane, 3), 4);
      StoreGroup(to, half * 32 + plane * 8 + i % 8, Or(low, high));
    }
  }
}

template <DType kType>
inline void DecodeBlock(const std::byte* block, const Target& to) {
  if constexpr (kType == DType::kQ4_0) {
    DecodeNibbleBlock<MinKind::kNone, Fifth::kAbsent>(block, to);
  } else if constexpr (kType == DType::kQ4_1) {
    DecodeNibbleBlock<MinKind::kPerSubBlock, Fifth::kAbsent>(block, to);
  } else if constexpr (kType == DType::kQ5_0) {
    DecodeNibbleBlock<MinKind::kNone, Fifth::kPresent>(block, to);
  } else if constexpr (kType == DType::kQ5_1) {
    DecodeNibbleBlock<MinKind::kPerSubBlock, Fifth::kPresent>(block, to);
  } else if constexpr (kType == DType::kIQ4_NL) {
    DecodeIq4Nl(block, to);
  } else if constexpr (kType == DType::kQ2_K) {
    DecodeQ2K(block, to);
  } else if constexpr (kType == DType::kQ3_K) {
    DecodeQ3K(block, to);
  } else if constexpr (kType == DType::kQ4_K) {
    DecodeQ45K<Fifth::kAbsent>(block, to);
  } else if constexpr (kType == DType::kQ5_K) {
    DecodeQ45K<Fifth::kPresent>(block, to);
  } else {
    static_assert(kType == DType::kQ6_K);
    DecodeQ6K(block, to);
  }
}

}  // namespace quire::kernels::QUIRE_MATMUL_NAMESPACE
