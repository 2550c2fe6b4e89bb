// What a tile kernel of either x86 instruction set is given. Included as matmul_x86_decode.h is.
#pragma once

#ifndef QUIRE_MATMUL_NAMESPACE
#error "include this header inside a target region, with a namespace for it"
#endif

namespace quire::kernels::QUIRE_MATMUL_NAMESPACE {

// Weights that are needed soon, fetched into the L2 cache while a tile multiplies: without that,
// memory would idle whenever several tiles share a chunk.
struct Ahead {
  const std::byte* next = nullptr;  // what this tile fetches
  int64_t lines_per_step = 0;       // cache lines per block of 32 columns

  void Fetch(int64_t step) const {
    const auto* line = reinterpret_cast<const char*>(next) + step * lines_per_step * 64;
    for (int64_t i = 0; i < lines_per_step; ++i) _mm_prefetch(line + 64 * i, _MM_HINT_T1);
  }
};

// The part of a panel's outputs that a tile works on.
struct Tile {
  const ActivationBlock* x;  // token 0 of the tile, first block of the chunk
  int64_t x_stride;          // blocks from token to token
  int64_t blocks;            // of 32 columns in the chunk
  float* y;                  // [kT][16 rows]: continued sums
  Ahead ahead;
};

// Weights as a tile kernel reads them. Q8_0 has its codes where the file's layout put them, so a
// source knows the distance between the codes of two blocks.
struct CodeSource {
  const std::byte* codes;
  int64_t codes_stride;  // bytes from block to block of 32 columns
  const float* scales;   // [sub-block][16]
  const float* mins;     // [sub-block][16]
  const int32_t* negatives;
};

// Whether decoded weights serve one tile or are worth preparing for several.
enum class Reuse { kOneTile, kManyTiles };

// Column k of float weights: w is [columns][16 rows] of kType.
template <DType kType>
inline FloatLanes LoadWeights(const std::byte* w, int64_t k) {
  if constexpr (kType == DType::kF32) {
    return LoadFloats(reinterpret_cast<const float*>(w) + k * kPanelRows);
  } else if constexpr (kType == DType::kF16) {
    return LoadHalves(w + k * 2 * kPanelRows);
  } else {
    const auto* words = reinterpret_cast<const __m128i*>(w + k * 2 * kPanelRows);
    auto widen = [](__m128i v) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
    };
    return {widen(_mm_loadu_si128(words)), widen(_mm_loadu_si128(words + 1))};
  }
}

struct FloatTile {
  const float* x;  // token 0 of the tile, first column of the chunk
  int64_t x_stride;
  int64_t columns;
  float* y;  // [kT][16]
  Ahead ahead;
};

}  // namespace quire::kernels::QUIRE_MATMUL_NAMESPACE
