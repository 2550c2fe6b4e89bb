// The x86 panel kernels but for their innermost loops. A panel is worked on in chunks of columns
// whose decoded codes stay in the L1 cache while all tokens pass over them, so weights are read
// from memory once per step; the sums between chunks wait in the output.
//
// Included by matmul_avx2.cc and matmul_avx512.cc after their tile kernels.
#pragma once

#ifndef QUIRE_MATMUL_NAMESPACE
#error "include this header inside a target region, with a namespace for it"
#endif

namespace quire::kernels::QUIRE_MATMUL_NAMESPACE {
namespace {

// |x| * (127 / max) rounds to at most 127, so the codes need no clamp.
void QuantizeBlock(const float* x, ActivationBlock& block) {
  __m256 v[4];
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i max = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(m));
  if (_mm_cvtsi128_si32(m) >= 0x7f800000 || largest < kTinyActivation) {
    block = {};
    if (!(largest < kTinyActivation)) block.scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  block.scale = largest / 127.0f;
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  auto sum = [](__m256i a, __m256i b) {
    const __m256i s = _mm256_add_epi32(a, b);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
  };
  const int first = sum(q[0], q[1]);
  const int second = sum(q[2], q[3]);
  block.half_sum[0] = static_cast<float>(first);
  block.half_sum[1] = static_cast<float>(second);
  block.sum = static_cast<float>(first + second);
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(block.codes),
                      _mm256_permutevar8x32_epi32(packed, order));
}

void QuantizeActivations(const float* x, int64_t cols, ActivationBlock* blocks) {
  for (int64_t b = 0; b < cols / kActivationBlock; ++b) {
    QuantizeBlock(x + b * kActivationBlock, blocks[b]);
  }
}

// Where a chunk lies in the sum over the columns.
struct ChunkRange {
  int64_t begin;
  int64_t end;
};

// A tile's place among those that share a chunk.
struct TileRange {
  int64_t token;
  int64_t index;
  int64_t count;
};

// The tile's share of fetching the chunk after this one; a tile that has its chunk to itself
// fetches a little ahead of its own reading. Panels follow one another in memory, so what comes
// after a panel is the next one.
Ahead FetchAhead(const PanelTask& task, ChunkRange chunk, TileRange tile) {
  constexpr int64_t kLine = 64;
  const DTypeTraits& type = Traits(task.type);
  const int64_t block_bytes = int64_t{type.block_bytes} * kPanelRows;
  const int64_t lines = (chunk.end - chunk.begin) / type.block_elements * block_bytes / kLine;
  const int64_t steps = (chunk.end - chunk.begin + kActivationBlock - 1) / kActivationBlock;
  const int64_t per_step = (lines + tile.count * steps - 1) / (tile.count * steps);
  if (tile.count == 1) {
    const int64_t begin = chunk.begin / type.block_elements * block_bytes;
    return {task.panel + begin + kAheadBytes, per_step};
  }
  const int64_t begin = chunk.end / type.block_elements * block_bytes;
  const int64_t first = tile.index * steps * per_step;
  if (first >= lines) return {};
  return {task.panel + begin + first * kLine, per_step};
}

// Sums of a tile enter from the output (zero in the first chunk) and leave to it, with the bias
// after the last chunk.
void LoadSums(const PanelTask& task, ChunkRange chunk, int64_t token, int tokens, float* y) {
  for (int t = 0; t < tokens; ++t) {
    float* row = y + t * kPanelRows;
    const float* out = task.out + (token + t) * task.out_stride;
    if (chunk.begin > 0 && task.rows == kPanelRows) {
      StoreFloats(row, LoadFloats(out));
      continue;
    }
    std::fill_n(row, kPanelRows, 0.0f);
    if (chunk.begin > 0) std::copy_n(out, task.rows, row);
  }
}

void StoreSums(const PanelTask& task, ChunkRange chunk, int64_t token, int tokens, float* y) {
  for (int t = 0; t < tokens; ++t) {
    float* row = y + t * kPanelRows;
    float* out = task.out + (token + t) * task.out_stride;
    if (task.bias != nullptr && chunk.end == task.cols) {
      for (int r = 0; r < task.rows; ++r) row[r] += task.bias[r];
    }
    if (task.rows == kPanelRows) {
      StoreFloats(out, LoadFloats(row));
    } else {
      std::copy_n(row, task.rows, out);
    }
  }
}

template <DType kType, Reuse kReuse>
CodeSource DecodeChunk(const PanelTask& task, ChunkRange chunk, Decoded& decoded) {
  constexpr DTypeTraits kBlock = Traits(kType);
  constexpr int kSubBlocks = kBlock.block_elements / QuantTraitsOf(kType).sub_block;
  const std::byte* block =
      task.panel + chunk.begin / kBlock.block_elements * kBlock.block_bytes * kPanelRows;
  const int64_t blocks = (chunk.end - chunk.begin) / kBlock.block_elements;
  for (int64_t b = 0; b < blocks; ++b, block += kBlock.block_bytes * kPanelRows) {
    const int64_t lanes = b * kSubBlocks * kPanelRows;
    if constexpr (kType == DType::kQ8_0) {
      StoreFloats(decoded.scales + lanes, LoadHalves(block));
    } else {
      DecodeBlock<kType>(block, {decoded.codes + b * kBlock.block_elements * kPanelRows,
                                 decoded.scales + lanes, decoded.mins + lanes});
    }
  }
  CodeSource source = {reinterpret_cast<const std::byte*>(decoded.codes), 8 * kGroupBytes,
                       decoded.scales, decoded.mins, decoded.negatives};
  if constexpr (kType == DType::kQ8_0) {
    source.codes = task.panel + chunk.begin / 32 * kBlock.block_bytes * kPanelRows + 2 * kPanelRows;
    source.codes_stride = kBlock.block_bytes * kPanelRows;
  }
  if constexpr (QuantTraitsOf(kType).codes == CodeKind::kSigned && kReuse == Reuse::kManyTiles) {
    for (int64_t b = 0; b < blocks; ++b) {
      StoreLanes(decoded.negatives + b * kPanelRows,
                 SumNegatives(source.codes + b * source.codes_stride));
    }
  }
  return source;
}

template <DType kType, int kT, Reuse kReuse>
void RunTile(const PanelTask& task, ChunkRange chunk, const CodeSource& source, TileRange range) {
  alignas(32) float y[kT * kPanelRows];
  const int64_t token = range.token;
  LoadSums(task, chunk, token, kT, y);
  MultiplyTile<kType, kT, kReuse>(
      source, {task.blocks + token * task.blocks_stride + chunk.begin / kActivationBlock,
               task.blocks_stride, (chunk.end - chunk.begin) / kActivationBlock, y,
               kReuse == Reuse::kOneTile ? Ahead() : FetchAhead(task, chunk, range)});
  StoreSums(task, chunk, token, kT, y);
}

// Calls run[n](task, chunk, source, token) for tiles of n <= max tokens that cover all tokens and
// differ by at most one in size: a narrow tile costs nearly as much as a wide one.
template <typename Source, size_t kSizes>
void RunTiles(void (*const (&run)[kSizes])(const PanelTask&, ChunkRange, const Source&, TileRange),
              const PanelTask& task, ChunkRange chunk, const Source& source) {
  const int64_t tokens = task.x.rows;
  const int64_t tiles = (tokens + kSizes - 2) / static_cast<int64_t>(kSizes - 1);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t begin = tokens * tile / tiles;
    const int64_t end = tokens * (tile + 1) / tiles;
    run[end - begin](task, chunk, source, {begin, tile, tiles});
  }
}

template <DType kType, Reuse kReuse, int... kT>
void RunQuantizedTiles(const PanelTask& task, ChunkRange chunk, const CodeSource& source,
                       std::integer_sequence<int, kT...>) {
  constexpr void (*kRun[])(const PanelTask&, ChunkRange, const CodeSource&, TileRange) = {
      nullptr, RunTile<kType, kT + 1, kReuse>...};
  RunTiles(kRun, task, chunk, source);
}

template <DType kType, Reuse kReuse>
void QuantizedChunks(const PanelTask& task) {
  // For one tile decoding and multiplying alternate quickly, which keeps memory busy throughout.
  constexpr int64_t kStep = kReuse == Reuse::kOneTile ? kSuperBlock : kChunk;
  Decoded decoded;
  for (int64_t begin = 0; begin < task.cols; begin += kStep) {
    const ChunkRange chunk = {begin, std::min(begin + kStep, task.cols)};
    RunQuantizedTiles<kType, kReuse>(task, chunk, DecodeChunk<kType, kReuse>(task, chunk, decoded),
                                     std::make_integer_sequence<int, kTileTokens>());
  }
}

template <DType kType>
void QuantizedPanel(const PanelTask& task) {
  if (task.x.rows <= kTileTokens) {
    QuantizedChunks<kType, Reuse::kOneTile>(task);
  } else {
    QuantizedChunks<kType, Reuse::kManyTiles>(task);
  }
}

inline constexpr int64_t kFloatChunk = 256;  // 16 KiB of f32 weights

// Weights of a float type, or what was decoded from them.
struct FloatSource {
  const std::byte* weights;  // [columns][16 rows]
};

template <DType kType, int kT>
void RunFloatTile(const PanelTask& task, ChunkRange chunk, const FloatSource& source,
                  TileRange range) {
  alignas(32) float y[kT * kPanelRows];
  const int64_t token = range.token;
  LoadSums(task, chunk, token, kT, y);
  MultiplyFloats<kType, kT>(source.weights,
                            {task.x.data + token * task.x.stride + chunk.begin, task.x.stride,
                             chunk.end - chunk.begin, y, FetchAhead(task, chunk, range)});
  StoreSums(task, chunk, token, kT, y);
}

// All tokens over one chunk, whose weights are of kType whatever the matrix has.
template <DType kType, int... kT>
void RunFloatTiles(const PanelTask& task, ChunkRange chunk, const std::byte* weights,
                   std::integer_sequence<int, kT...>) {
  constexpr void (*kRun[])(const PanelTask&, ChunkRange, const FloatSource&, TileRange) = {
      nullptr, RunFloatTile<kType, kT + 1>...};
  RunTiles(kRun, task, chunk, FloatSource{weights});
}

template <DType kType>
void FloatPanel(const PanelTask& task) {
  constexpr auto kSizes = std::make_integer_sequence<int, kFloatTileTokens>();
  if (task.x.rows <= kFloatTileTokens) {
    return RunFloatTiles<kType>(task, {0, task.cols}, task.panel, kSizes);
  }
  alignas(64) float decoded[kFloatChunk * kPanelRows];
  for (int64_t begin = 0; begin < task.cols; begin += kFloatChunk) {
    const ChunkRange chunk = {begin, std::min(begin + kFloatChunk, task.cols)};
    const std::byte* weights = task.panel + begin * Traits(kType).block_bytes * kPanelRows;
    if constexpr (kType != DType::kF32) {
      for (int64_t k = 0; k < chunk.end - begin; ++k) {
        StoreFloats(decoded + k * kPanelRows, LoadWeights<kType>(weights, k));
      }
      weights = reinterpret_cast<const std::byte*>(decoded);
    }
    RunFloatTiles<DType::kF32>(task, chunk, weights, kSizes);
  }
}

constexpr MatmulKernels MakeMatmulKernels() {
  return {QuantizeActivations,
          {FloatPanel<DType::kF32>, FloatPanel<DType::kF16>, FloatPanel<DType::kBF16>,
           QuantizedPanel<DType::kQ8_0>, QuantizedPanel<DType::kQ4_0>, QuantizedPanel<DType::kQ4_1>,
           QuantizedPanel<DType::kQ5_0>, QuantizedPanel<DType::kQ5_1>, QuantizedPanel<DType::kQ2_K>,
           QuantizedPanel<DType::kQ3_K>, QuantizedPanel<DType::kQ4_K>, QuantizedPanel<DType::kQ5_K>,
           QuantizedPanel<DType::kQ6_K>, QuantizedPanel<DType::kIQ4_NL>}};
}

}  // namespace
}  // namespace quire::kernels::QUIRE_MATMUL_NAMESPACE
