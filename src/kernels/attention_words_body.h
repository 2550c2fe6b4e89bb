// The bodies of attention's kernels on integer codes, written once over a SIMD wrapper S, and the
// table of all kernels. Included after attention_quantized_body.h, under the same rules. What they
// compute: attention_scalar_quantized.cc. Head sizes that are no multiple of 16 go to those loops.
#pragma once

namespace quire::kernels {
namespace {

// ---- products of 16-bit integers and codes

// sums[r][i] += the products of one chunk of codes, lanes `lane` onwards, and each row's integers.
// words: the chunk's, at the first lane; pairs: the chunk's, [rows, kPairs].
template <typename S, Plane kPlane, int kBits, int kRows, int kRegisters>
[[gnu::always_inline]] inline void AddCodeProducts(const typename CodeWords<kBits>::Word* words,
                                                   int lanes, const int32_t* pairs,
                                                   typename S::I (&sums)[kRows][kRegisters]) {
  using Words = CodeWords<kBits>;
  const auto mask = S::SetInt(Words::kMaxCode * 0x10001);
  [[maybe_unused]] const auto mask_in_place = S::SetInt((Words::kMaxCode << 2) * 0x10001);
#pragma GCC unroll 8
  for (int w = 0; w < Words::kPerChunk; ++w, words += lanes) {
    typename S::I word[kRegisters];
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      word[i] =
          kBits == 8 ? S::LoadBytePairs(words + i * S::kWidth) : S::LoadInts(words + i * S::kWidth);
    }
#pragma GCC unroll 8
    for (int k = 0; k < Words::kPerHalf; ++k, ++pairs) {
      typename S::I codes[kRegisters];
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        if constexpr (kBits == 8) {
          codes[i] = word[i];
        } else if (IsMultipliedInPlace<kPlane, kBits>(k)) {
          codes[i] = S::And(word[i], mask_in_place);
          word[i] = S::template ShiftRight<2 * kBits>(word[i]);
        } else {
          codes[i] = S::And(word[i], mask);
          // Two at once if the next pair needs no shift.
          if (!IsMultipliedInPlace<kPlane, kBits>(k + 1)) {
            word[i] = S::template ShiftRight<kBits>(word[i]);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto factor = S::SetInt(pairs[r * kPairs]);
#pragma GCC unroll 4
        for (int i = 0; i < kRegisters; ++i) {
          sums[r][i] = S::AddPairProducts(sums[r][i], codes[i], factor);
        }
      }
    }
  }
}

template <typename S, int kRows, int kRegisters>
[[gnu::always_inline]] inline void Clear(typename S::I (&sums)[kRows][kRegisters]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = S::SetInt(0);
  }
}

// ---- scales folded into queries and weights

template <typename S, int kRows>
struct FoldedRows {
  typename S::F largest[kRows];
  float scale[kRows];
  alignas(64) float inverse[kRows][kChunk];  // for the numbers of a chunk
};

template <typename S, int kRows>
[[gnu::always_inline]] inline void Begin(FoldedRows<S, kRows>& rows) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) rows.largest[r] = S::Set(0.0f);
}

// totals[r] = the sum of a row's kChunk partial sums.
template <typename S, int kRows, int kRegisters>
[[gnu::always_inline]] inline void StoreSums(typename S::F (&sums)[kRows][kRegisters],
                                             float* totals) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int half = kRegisters / 2; half > 0; half /= 2) {
#pragma GCC unroll 2
      for (int i = 0; i < half; ++i) sums[r][i] = S::Add(sums[r][i], sums[r][i + half]);
    }
    totals[r] = S::SumLanes(sums[r][0]);
  }
}

// The rows' numbers that scales are folded into.
struct RowNumbers {
  const float* x;  // [rows, stride]
  int stride;
  int count;  // a multiple of 16
};

// products[r][i] = x[r][i] * scale[i], [rows, count]; each row's largest joins rows.largest, and
// bias[r] is the sum of x * min.
template <typename S, int kRows>
[[gnu::always_inline]] inline void Fold(const RowNumbers& numbers, Scales<const uint16_t> scales,
                                        float* products, FoldedRows<S, kRows>& rows, float* bias) {
  constexpr int kRegisters = kChunk / S::kWidth;
  typename S::F sums[kRows][kRegisters];
  ClearFloats<S>(sums);
  for (int first = 0; first < numbers.count; first += kChunk) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      const int at = first + i * S::kWidth;
      const typename S::F scale = S::LoadF16(scales.scale + at);
      const typename S::F min = S::LoadF16(scales.min + at);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename S::F value = S::Load(numbers.x + r * numbers.stride + at);
        const typename S::F product = S::Mul(value, scale);
        S::Store(products + r * numbers.count + at, product);
        rows.largest[r] = S::Max(S::Abs(product), rows.largest[r]);
        sums[r][i] = S::Fma(value, min, sums[r][i]);
      }
    }
  }
  StoreSums<S>(sums, bias);
}

// As Fold for kCount numbers that are not negative; stores the scales as floats, no products.
template <typename S, int kRows, bool kHasMin, int kCount>
[[gnu::always_inline]] inline void FoldSpan(const RowNumbers& numbers,
                                            Scales<const uint16_t> scales, float* scale_floats,
                                            FoldedRows<S, kRows>& rows, float* bias) {
  constexpr int kRegisters = kChunk / S::kWidth;
  typename S::F sums[kRows][kRegisters];
  ClearFloats<S>(sums);
#pragma GCC unroll 2
  for (int first = 0; first < kCount; first += kChunk) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      const int at = first + i * S::kWidth;
      const typename S::F scale = S::LoadF16(scales.scale + at);
      S::Store(scale_floats + at, scale);
      typename S::F min = S::Set(0.0f);
      if constexpr (kHasMin) min = S::LoadF16(scales.min + at);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename S::F value = S::Load(numbers.x + r * numbers.stride + at);
        rows.largest[r] = S::Max(S::Mul(value, scale), rows.largest[r]);
        if constexpr (kHasMin) sums[r][i] = S::Fma(value, min, sums[r][i]);
      }
    }
  }
  if constexpr (kHasMin) StoreSums<S>(sums, bias);
}

template <typename S, Plane kPlane, int kBits, int kRows>
[[gnu::always_inline]] inline void FindScales(FoldedRows<S, kRows>& rows) {
  alignas(64) static constexpr float kFactors[kChunk] = {
      1, IntegerFactor<kPlane, kBits>(1),  1, IntegerFactor<kPlane, kBits>(3),
      1, IntegerFactor<kPlane, kBits>(5),  1, IntegerFactor<kPlane, kBits>(7),
      1, IntegerFactor<kPlane, kBits>(9),  1, IntegerFactor<kPlane, kBits>(11),
      1, IntegerFactor<kPlane, kBits>(13), 1, IntegerFactor<kPlane, kBits>(15)};
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const float largest = S::MaxLanes(rows.largest[r]);
    rows.scale[r] = largest >= kTiny ? largest / kLargestInteger : 0.0f;
    const auto inverse = S::Set(largest >= kTiny ? kLargestInteger / largest : 0.0f);
#pragma GCC unroll 4
    for (int i = 0; i < kChunk; i += S::kWidth) {
      S::Store(rows.inverse[r] + i, S::Mul(inverse, S::Load(kFactors + i)));
    }
  }
}

// [chunk, rows, pair] from [rows, stride].
template <typename S, int kRows>
[[gnu::always_inline]] inline void StorePairs(const float* products, int stride, int chunks,
                                              const FoldedRows<S, kRows>& rows, int32_t* pairs) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float* numbers = products + r * stride + chunk * kChunk;
      S::StoreAsPairs(numbers, rows.inverse[r], pairs + (chunk * kRows + r) * kPairs);
    }
  }
}

// ---- keys with scales per token: int8 and int4

template <typename S, int kBits, int kRows>
void TokenScoreRows(const ScoreTile& tile) {
  using Words = CodeWords<kBits>;
  const int n = tile.block_size;
  const int chunks = tile.head_dim / kChunk;
  const int groups = kBits == 8 ? Int8Groups(tile.head_dim) : KvGroups(tile.head_dim);
  constexpr int kGroupChunks = (kBits == 8 ? kInt8Group : kKvGroup) / kChunk;
  const auto queries = IntegerQueriesAt(const_cast<std::byte*>(tile.q), tile.head_dim, kRows);
  const auto* pairs = reinterpret_cast<const int32_t*>(tile.q);
  const auto scales = GroupScales(tile.keys, KeyCodeBytes<kBits>(tile.head_dim, n), groups, n);
  const auto* words = reinterpret_cast<const typename Words::Word*>(tile.keys);
  const int tokens = (tile.end + 15) / 16 * 16 - tile.begin / 16 * 16;
  Prefetcher prefetcher = PrefetcherFor<S, kRows>(
      tile.next, KeyPieceBytes(kBits == 8 ? KvCodec::kInt8 : KvCodec::kInt4, tile.head_dim, n),
      chunks, tokens);
  ForEachLanes<S, kRows>(
      tile.begin / 16 * 16, (tile.end + 15) / 16 * 16, [&]<int kRegisters>(int token) {
        typename S::F scores[kRows][kRegisters];
        ClearFloats<S>(scores);
        for (int g = 0, chunk = 0; g < groups; ++g) {
          const int end = g + 1 == groups ? chunks : chunk + kGroupChunks;
          typename S::I sums[kRows][kRegisters];
          Clear<S>(sums);
          for (; chunk < end; ++chunk) {
            prefetcher.Advance();
            AddCodeProducts<S, Plane::kKeys, kBits>(words + chunk * Words::kPerChunk * n + token, n,
                                                    pairs + chunk * kRows * kPairs, sums);
          }
#pragma GCC unroll 4
          for (int i = 0; i < kRegisters; ++i) {
            const int lane = g * n + token + i * S::kWidth;
            const typename S::F scale = S::LoadF16(scales.scale + lane);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              scores[r][i] = S::Fma(S::ToFloat(sums[r][i]), scale, scores[r][i]);
            }
            if constexpr (kBits != 8) {
              const typename S::F min = S::LoadF16(scales.min + lane);
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r) {
                scores[r][i] = S::Fma(S::Set(queries.sums[g * kRows + r]), min, scores[r][i]);
              }
            }
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const typename S::F scale = S::Set(queries.scale[r]);
#pragma GCC unroll 4
          for (int i = 0; i < kRegisters; ++i) {
            S::Store(tile.scores + r * kSpan + token + i * S::kWidth, S::Mul(scores[r][i], scale));
          }
        }
      });
}

// ---- keys with scales per channel: kivi

template <typename S, int kBits, int kRows>
void ChannelScoreRows(const ScoreTile& tile) {
  using Words = CodeWords<kBits>;
  const int n = tile.block_size;
  const int d = tile.head_dim;
  const int chunks = d / kChunk;
  const auto* q = reinterpret_cast<const float*>(tile.q);
  const auto* words = reinterpret_cast<const typename Words::Word*>(tile.keys);
  const auto scales = GroupScales(tile.keys, KeyCodeBytes<kBits>(d, n), KiviTokenGroups(n), d);
  alignas(64) float products[kRows * kMaxHeadDim];
  alignas(64) int32_t pairs[kRows * kMaxHeadDim / 2];
  const int spans = (tile.end + kKvGroup - 1) / kKvGroup - tile.begin / kKvGroup;
  Prefetcher prefetcher = PrefetcherFor<S, kRows>(
      tile.next, KeyPieceBytes(kBits == 4 ? KvCodec::kKivi4 : KvCodec::kKivi2, d, n),
      chunks * spans, kKvGroup);
  for (int first = tile.begin / kKvGroup * kKvGroup; first < tile.end; first += kKvGroup) {
    const int channels = first / kKvGroup * d;
    FoldedRows<S, kRows> folded;
    float biases[kRows];
    Begin(folded);
    Fold<S, kRows>({q, d, d}, {scales.scale + channels, scales.min + channels}, products, folded,
                   biases);
    FindScales<S, Plane::kKeys, kBits>(folded);
    StorePairs(products, d, chunks, folded, pairs);
    const int begin = tile.begin > first ? tile.begin / 16 * 16 : first;
    const int end = tile.end < first + kKvGroup ? (tile.end + 15) / 16 * 16 : first + kKvGroup;
    ForEachLanes<S, kRows>(begin, end, [&]<int kRegisters>(int token) {
      typename S::I sums[kRows][kRegisters];
      Clear<S>(sums);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        prefetcher.Advance();
        AddCodeProducts<S, Plane::kKeys, kBits>(words + chunk * Words::kPerChunk * n + token, n,
                                                pairs + chunk * kRows * kPairs, sums);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename S::F scale = S::Set(folded.scale[r]);
        const typename S::F bias = S::Set(biases[r]);
#pragma GCC unroll 4
        for (int i = 0; i < kRegisters; ++i) {
          S::Store(tile.scores + r * kSpan + token + i * S::kWidth,
                   S::Fma(S::ToFloat(sums[r][i]), scale, bias));
        }
      }
    });
  }
}

// ---- values

// The tokens [begin, end) of a value span, 0 in the place of others: those may hold anything.
template <typename T>
const T* OnlyTokens(const T* from, int begin, int end, T (&to)[kValueSpan]) {
  for (int t = 0; t < kValueSpan; ++t) to[t] = t >= begin && t < end ? from[t] : T{};
  return to;
}

template <typename S, int kBits, int kRows>
struct ValueSpan {
  static constexpr int kMaxGroups = kBits == 8 ? kMaxHeadDim / kInt8Group : kMaxKvGroups;
  FoldedRows<S, kRows> folded;
  float bias[kMaxGroups][kRows];
  alignas(64) int32_t pairs[kMaxGroups][kValueSpan / kChunk * kRows * kPairs];
};

// Weights times scales of tokens [first, first + kValueSpan) as far as they are the tile's. Neither
// is ever negative.
template <typename S, int kBits, int kRows, int kTokens>
[[gnu::always_inline]] inline void FoldWeights(const ValueTile& tile, int first,
                                               ValueSpan<S, kBits, kRows>& span) {
  constexpr bool kHasMin = kBits != 8;
  const int n = tile.block_size;
  const int groups = kBits == 8 ? Int8Groups(tile.head_dim) : KvGroups(tile.head_dim);
  const auto scales = GroupScales(tile.values, ValueCodeBytes<kBits>(tile.head_dim, n), groups, n);
  const int begin = tile.begin > first ? tile.begin - first : 0;
  const int end = tile.end - first < kTokens ? tile.end - first : kTokens;
  const bool whole = begin == 0 && end == kTokens;
  const float* weights = tile.weights + first;
  int stride = kSpan;
  float weights_part[kRows][kValueSpan];
  if (!whole) {
    for (int r = 0; r < kRows; ++r) OnlyTokens(weights + r * kSpan, begin, end, weights_part[r]);
    weights = weights_part[0];
    stride = kValueSpan;
  }
  alignas(64) float scale_floats[ValueSpan<S, kBits, kRows>::kMaxGroups][kValueSpan];
  Begin(span.folded);
  for (int g = 0; g < groups; ++g) {
    Scales<const uint16_t> scale{scales.scale + g * n + first,
                                 kHasMin ? scales.min + g * n + first : nullptr};
    uint16_t scale_part[kValueSpan], min_part[kValueSpan];
    if (!whole) {
      scale.scale = OnlyTokens(scale.scale, begin, end, scale_part);
      if (kHasMin) scale.min = OnlyTokens(scale.min, begin, end, min_part);
    }
    FoldSpan<S, kRows, kHasMin, kTokens>({weights, stride, kTokens}, scale, scale_floats[g],
                                         span.folded, span.bias[g]);
  }
  FindScales<S, Plane::kValues, kBits>(span.folded);
  alignas(64) float scaled[kRows][kValueSpan];
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; t += S::kWidth) {
      S::Store(scaled[r] + t, S::Mul(S::Load(weights + r * stride + t),
                                     S::Load(span.folded.inverse[r] + t % kChunk)));
    }
  }
  for (int g = 0; g < groups; ++g) {
#pragma GCC unroll 2
    for (int chunk = 0; chunk < kTokens / kChunk; ++chunk) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        S::StoreAsPairs(scale_floats[g] + chunk * kChunk, scaled[r] + chunk * kChunk,
                        span.pairs[g] + (chunk * kRows + r) * kPairs);
      }
    }
  }
}

// Tokens [first, first + kTokens), a value span or a whole block.
template <typename S, int kBits, int kRows, int kTokens>
[[gnu::always_inline]] inline void AddCodeSpan(const ValueTile& tile, int first,
                                               Prefetcher& prefetcher) {
  using Words = CodeWords<kBits>;
  const int d = tile.head_dim;
  const int groups = kBits == 8 ? Int8Groups(d) : KvGroups(d);
  const auto* words = reinterpret_cast<const typename Words::Word*>(tile.values) +
                      first / kChunk * Words::kPerChunk * d;
  ValueSpan<S, kBits, kRows> span;
  FoldWeights<S, kBits, kRows, kTokens>(tile, first, span);
  for (int g = 0, channel = 0; g < groups; ++g) {
    const int last = g + 1 == groups ? d : channel + (kBits == 8 ? kInt8Group : kKvGroup);
    ForEachLanes<S, kRows>(channel, last, [&]<int kRegisters>(int lane) {
      typename S::I sums[kRows][kRegisters];
      Clear<S>(sums);
      prefetcher.Advance();
      for (int chunk = 0; chunk < kTokens / kChunk; ++chunk) {
        AddCodeProducts<S, Plane::kValues, kBits>(words + chunk * Words::kPerChunk * d + lane, d,
                                                  span.pairs[g] + chunk * kRows * kPairs, sums);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const typename S::F factor = S::Set(span.folded.scale[r]);
        const typename S::F bias = S::Set(kBits == 8 ? 0.0f : span.bias[g][r]);
#pragma GCC unroll 4
        for (int i = 0; i < kRegisters; ++i) {
          float* out = tile.out + r * d + lane + i * S::kWidth;
          typename S::F sum = S::Load(out);
          if constexpr (kBits != 8) sum = S::Add(sum, bias);
          S::Store(out, S::Fma(S::ToFloat(sums[r][i]), factor, sum));
        }
      }
    });
    channel = last;
  }
}

template <typename S, int kBits, int kRows>
void AddCodeRows(const ValueTile& tile) {
  const int n = tile.block_size;
  Prefetcher prefetcher = PrefetcherFor<S, kRows>(
      tile.next,
      ValuePieceBytes(kBits == 8   ? KvCodec::kInt8
                      : kBits == 4 ? KvCodec::kKivi4
                                   : KvCodec::kKivi2,
                      tile.head_dim, n),
      (tile.end - 1) / kValueSpan - tile.begin / kValueSpan + 1, tile.head_dim);
  if (n < kValueSpan) return AddCodeSpan<S, kBits, kRows, kChunk>(tile, 0, prefetcher);
  for (int first = tile.begin / kValueSpan * kValueSpan; first < tile.end; first += kValueSpan) {
    AddCodeSpan<S, kBits, kRows, kValueSpan>(tile, first, prefetcher);
  }
}

// ---- the table

template <typename S, int kBits>
void TokenScores(const ScoreTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ScoreTile&) = {
      TokenScoreRows<S, kBits, 1>, TokenScoreRows<S, kBits, 2>, TokenScoreRows<S, kBits, 3>,
      TokenScoreRows<S, kBits, 4>, TokenScoreRows<S, kBits, 5>, TokenScoreRows<S, kBits, 6>};
  constexpr KvCodec kCodec = kBits == 8 ? KvCodec::kInt8 : KvCodec::kInt4;
  if (tile.head_dim % kChunk != 0) return ScalarQuantizedKernels(kCodec).scores(tile);
  kByRows[tile.rows - 1](tile);
}

template <typename S, int kBits>
void ChannelScores(const ScoreTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ScoreTile&) = {
      ChannelScoreRows<S, kBits, 1>, ChannelScoreRows<S, kBits, 2>, ChannelScoreRows<S, kBits, 3>,
      ChannelScoreRows<S, kBits, 4>, ChannelScoreRows<S, kBits, 5>, ChannelScoreRows<S, kBits, 6>};
  constexpr KvCodec kCodec = kBits == 4 ? KvCodec::kKivi4 : KvCodec::kKivi2;
  if (tile.head_dim % kChunk != 0) return ScalarQuantizedKernels(kCodec).scores(tile);
  kByRows[tile.rows - 1](tile);
}

template <typename S, int kBits>
void AddCodes(const ValueTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ValueTile&) = {
      AddCodeRows<S, kBits, 1>, AddCodeRows<S, kBits, 2>, AddCodeRows<S, kBits, 3>,
      AddCodeRows<S, kBits, 4>, AddCodeRows<S, kBits, 5>, AddCodeRows<S, kBits, 6>};
  constexpr KvCodec kCodec = kBits == 8   ? KvCodec::kInt8
                             : kBits == 4 ? KvCodec::kKivi4
                                          : KvCodec::kKivi2;
  if (tile.head_dim % kChunk != 0) return ScalarQuantizedKernels(kCodec).add_values(tile);
  kByRows[tile.rows - 1](tile);
}

template <typename S, typename Format>
void Fp8Scores(const ScoreTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ScoreTile&) = {
      Fp8ScoreRows<S, Format, 1>, Fp8ScoreRows<S, Format, 2>, Fp8ScoreRows<S, Format, 3>,
      Fp8ScoreRows<S, Format, 4>, Fp8ScoreRows<S, Format, 5>, Fp8ScoreRows<S, Format, 6>};
  kByRows[tile.rows - 1](tile);
}

template <typename S, typename Format>
void Fp8AddValues(const ValueTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ValueTile&) = {
      Fp8AddRows<S, Format, 1>, Fp8AddRows<S, Format, 2>, Fp8AddRows<S, Format, 3>,
      Fp8AddRows<S, Format, 4>, Fp8AddRows<S, Format, 5>, Fp8AddRows<S, Format, 6>};
  constexpr KvCodec kCodec = Format::kShift == E4M3::kShift ? KvCodec::kFp8E4M3 : KvCodec::kFp8E5M2;
  if (tile.head_dim % kChunk != 0) return ScalarQuantizedKernels(kCodec).add_values(tile);
  kByRows[tile.rows - 1](tile);
}

// The scalar codec's encoders and preparation, this instruction set's reading.
KvCodecKernels WithReaders(KvCodec codec, void (*scores)(const ScoreTile&),
                           void (*add_values)(const ValueTile&)) {
  KvCodecKernels kernels = ScalarQuantizedKernels(codec);
  kernels.scores = scores;
  kernels.add_values = add_values;
  return kernels;
}

template <typename S>
AttentionKernels MakeAttentionKernels() {
  return {{MakeCodecKernels<S, F32Kv<S>>(), MakeCodecKernels<S, F16Kv<S>>(),
           MakeCodecKernels<S, Bf16Kv<S>>(),
           WithReaders(KvCodec::kFp8E4M3, Fp8Scores<S, E4M3>, Fp8AddValues<S, E4M3>),
           WithReaders(KvCodec::kFp8E5M2, Fp8Scores<S, E5M2>, Fp8AddValues<S, E5M2>),
           WithReaders(KvCodec::kInt8, TokenScores<S, 8>, AddCodes<S, 8>),
           WithReaders(KvCodec::kInt4, TokenScores<S, 4>, AddCodes<S, 4>),
           WithReaders(KvCodec::kKivi4, ChannelScores<S, 4>, AddCodes<S, 4>),
           WithReaders(KvCodec::kKivi2, ChannelScores<S, 2>, AddCodes<S, 2>)},
          Softmax<S>,
          Merge<S>,
          Rotate<S>};
}

}  // namespace
}  // namespace quire::kernels
