// The bodies of attention's kernels, written once over a SIMD wrapper S (simd_scalar.h). Included
// by attention_{avx2,avx512,neon}.cc only, inside their instruction set's region; every other
// header must have been included before. attention_scalar.cc says what they compute.
#pragma once

namespace quire::kernels {
namespace {

// Accumulators that fit in the registers beside operands: AVX2 has 16 registers, the others 32.
template <typename S>
inline constexpr int kAccumulators = S::kWidth == 8 ? 12 : 24;

template <typename S>
struct F32Kv {
  using Stored = float;
  static constexpr float kMax = std::numeric_limits<float>::max();
  static typename S::F Load(const float* p) { return S::Load(p); }
  static void Store(float* p, typename S::F x) { S::Store(p, x); }
  static float Decode(float x) { return x; }
};

template <typename S>
struct F16Kv {
  using Stored = uint16_t;
  static constexpr float kMax = 65504.0f;
  static typename S::F Load(const uint16_t* p) { return S::LoadF16(p); }
  static void Store(uint16_t* p, typename S::F x) { S::StoreF16(p, x); }
  static float Decode(uint16_t x) { return F32FromF16(x); }
};

template <typename S>
struct Bf16Kv {
  using Stored = uint16_t;
  static constexpr float kMax = 0x1.fep127f;
  static typename S::F Load(const uint16_t* p) { return S::LoadBf16(p); }
  static void Store(uint16_t* p, typename S::F x) { S::StoreBf16(p, x); }
  static float Decode(uint16_t x) { return F32FromBf16(x); }
};

// Asks for the next piece of the cache bit by bit while this one is computed with: all at once
// would fill the queues for outstanding reads and stall. Each step of an inner loop asks for `step`
// bytes.
class Prefetcher {
 public:
  Prefetcher(const std::byte* next, int step) : next_(next), step_(step) {}
  [[gnu::always_inline]] inline void Advance() {
    if (next_ == nullptr) return;
    for (int i = 0; i < step_; i += 64) __builtin_prefetch(next_ + i);
    next_ += step_;
  }
  const std::byte* next() const { return next_; }

 private:
  const std::byte* next_;
  int step_;
};

// sums[r][i] += factors[r * stride] * (register i of `stored`). Whichever operand takes fewer
// registers is held, the other one passes through one register.
template <typename S, typename Kv, int kRows, int kRegisters>
[[gnu::always_inline]] inline void AddProducts(const float* factors, int stride,
                                               const typename Kv::Stored* stored,
                                               typename S::F (&sums)[kRows][kRegisters]) {
  if constexpr (kRows < kRegisters) {
    typename S::F held[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) held[r] = S::Set(factors[r * stride]);
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      typename S::F x = Kv::Load(stored + i * S::kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][i] = S::Fma(held[r], x, sums[r][i]);
    }
  } else {
    typename S::F held[kRegisters];
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) held[i] = Kv::Load(stored + i * S::kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      typename S::F x = S::Set(factors[r * stride]);
#pragma GCC unroll 16
      for (int i = 0; i < kRegisters; ++i) sums[r][i] = S::Fma(x, held[i], sums[r][i]);
    }
  }
}

// ---- scores: lanes are tokens

// [rows, head_dim] to [head_dim, rows].
template <typename S>
void Prepare(const QueryTile& tile) {
  auto* packed = reinterpret_cast<float*>(tile.prepared);
  for (int r = 0; r < tile.rows; ++r) {
    const float* q = tile.q + r * tile.head_dim;
    for (int c = 0; c < tile.head_dim; ++c) packed[c * tile.rows + r] = q[c];
  }
}

// Tokens [token, token + kRegisters * width) against kRows rows.
template <typename S, typename Kv, int kRows, int kRegisters>
void ScoreChunk(const ScoreTile& tile, int token, Prefetcher& prefetcher) {
  typename S::F sums[kRows][kRegisters];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = S::Set(0.0f);
  }
  const auto* keys = reinterpret_cast<const typename Kv::Stored*>(tile.keys) + token;
  const auto* q = reinterpret_cast<const float*>(tile.q);
  for (int c = tile.head_dim; c > 0; --c, keys += tile.block_size, q += kRows) {
    prefetcher.Advance();
    AddProducts<S, Kv, kRows, kRegisters>(q, 1, keys, sums);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      S::Store(tile.scores + r * kSpan + token + i * S::kWidth, sums[r][i]);
    }
  }
}

template <typename S, typename Kv, int kRows>
void ScoreRows(const ScoreTile& tile) {
  constexpr int kWidest = kAccumulators<S> / kRows * S::kWidth;  // tokens at once
  constexpr int kStored = sizeof(typename Kv::Stored);
  const std::byte* next = tile.next;
  int token = tile.begin / 16 * 16;
  const int end = (tile.end + 15) / 16 * 16;
  const int tokens = end - token;
  auto score = [&]<int kTokens>() {
    for (; token + kTokens <= end; token += kTokens) {
      Prefetcher prefetcher(next, tile.block_size * kStored * kTokens / tokens);
      ScoreChunk<S, Kv, kRows, kTokens / S::kWidth>(tile, token, prefetcher);
      next = prefetcher.next();
    }
  };
  if constexpr (kWidest >= 64) score.template operator()<64>();
  if constexpr (kWidest >= 32) score.template operator()<32>();
  score.template operator()<16>();
}

template <typename S, typename Kv>
void Scores(const ScoreTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ScoreTile&) = {
      ScoreRows<S, Kv, 1>, ScoreRows<S, Kv, 2>, ScoreRows<S, Kv, 3>,
      ScoreRows<S, Kv, 4>, ScoreRows<S, Kv, 5>, ScoreRows<S, Kv, 6>};
  kByRows[tile.rows - 1](tile);
}

// ---- values: lanes are channels

// Channels [channel, channel + kRegisters * width) of kRows rows.
template <typename S, typename Kv, int kRows, int kRegisters>
void ValueChunk(const ValueTile& tile, int channel, Prefetcher& prefetcher) {
  typename S::F sums[kRows][kRegisters];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      sums[r][i] = S::Load(tile.out + r * tile.head_dim + channel + i * S::kWidth);
    }
  }
  const auto* values = reinterpret_cast<const typename Kv::Stored*>(tile.values) +
                       static_cast<int64_t>(tile.begin) * tile.head_dim + channel;
  const float* weights = tile.weights + tile.begin;
  for (int t = tile.end - tile.begin; t > 0; --t, values += tile.head_dim, ++weights) {
    prefetcher.Advance();
    AddProducts<S, Kv, kRows, kRegisters>(weights, kSpan, values, sums);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      S::Store(tile.out + r * tile.head_dim + channel + i * S::kWidth, sums[r][i]);
    }
  }
}

// Channels beyond the last whole register.
template <typename S, typename Kv>
void ValueRemainder(const ValueTile& tile, int channel) {
  const auto* values = reinterpret_cast<const typename Kv::Stored*>(tile.values);
  for (int t = tile.begin; t < tile.end; ++t) {
    for (int r = 0; r < tile.rows; ++r) {
      float* out = tile.out + r * tile.head_dim;
      for (int c = channel; c < tile.head_dim; ++c) {
        out[c] = __builtin_fmaf(tile.weights[r * kSpan + t],
                                Kv::Decode(values[t * tile.head_dim + c]), out[c]);
      }
    }
  }
}

template <typename S, typename Kv, int kRows>
void AddValueRows(const ValueTile& tile) {
  constexpr int kWidest = kAccumulators<S> / kRows;  // registers at once
  constexpr int kStored = sizeof(typename Kv::Stored);
  const std::byte* next = tile.next;
  int channel = 0;
  auto add = [&]<int kRegisters>() {
    constexpr int kChannels = kRegisters * S::kWidth;
    for (; channel + kChannels <= tile.head_dim; channel += kChannels) {
      Prefetcher prefetcher(next, kChannels * kStored);
      ValueChunk<S, Kv, kRows, kRegisters>(tile, channel, prefetcher);
      next = prefetcher.next();
    }
  };
  if constexpr (kWidest >= 8) add.template operator()<8>();
  if constexpr (kWidest >= 4) add.template operator()<4>();
  if constexpr (kWidest >= 2) add.template operator()<2>();
  add.template operator()<1>();
  if (channel < tile.head_dim) ValueRemainder<S, Kv>(tile, channel);
}

template <typename S, typename Kv>
void AddValues(const ValueTile& tile) {
  constexpr void (*kByRows[kRowTile])(const ValueTile&) = {
      AddValueRows<S, Kv, 1>, AddValueRows<S, Kv, 2>, AddValueRows<S, Kv, 3>,
      AddValueRows<S, Kv, 4>, AddValueRows<S, Kv, 5>, AddValueRows<S, Kv, 6>};
  kByRows[tile.rows - 1](tile);
}

// ---- softmax and merge

template <typename S>
typename S::F ExpNonPositiveOf(typename S::F x) {
  typename S::F shifted = S::Fma(x, S::Set(kLog2E), S::Set(kRoundMagic));
  typename S::F n = S::Sub(shifted, S::Set(kRoundMagic));
  typename S::F r = S::NegFma(n, S::Set(kLn2Low), S::NegFma(n, S::Set(kLn2High), x));
  typename S::F p = S::Set(kExpP[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) p = S::Fma(p, r, S::Set(kExpP[i]));
  typename S::F value = S::Add(S::Fma(p, S::Mul(r, r), r), S::Set(1.0f));
  value = S::FromBits(S::AddInt(S::BitsOf(value), S::template ShiftLeft<23>(S::BitsOf(shifted))));
  return S::SelectLess(x, S::Set(kExpLowest), S::Set(0.0f), value);
}

template <typename S>
typename S::F SoftcapOf(typename S::F s, typename S::F cap) {
  typename S::F x = S::Div(s, cap);
  typename S::F t = ExpNonPositiveOf<S>(S::Mul(S::Set(-2.0f), S::Abs(x)));
  const typename S::F one = S::Set(1.0f);
  return S::Mul(cap, S::CopySign(S::Div(S::Sub(one, t), S::Add(one, t)), x));
}

template <typename S>
SpanSums Softmax(float* scores, int begin, int end, float softcap) {
  int from = begin / kSoftmaxLanes * kSoftmaxLanes;
  int to = (end + kSoftmaxLanes - 1) / kSoftmaxLanes * kSoftmaxLanes;
  if (softcap != 0.0f) {
    for (int t = from; t < to; t += S::kWidth) {
      S::Store(scores + t, SoftcapOf<S>(S::Load(scores + t), S::Set(softcap)));
    }
  }
  // What the row does not see must neither be the largest nor weigh anything, NaN or not.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int t = from; t < begin; ++t) scores[t] = -kInfinity;
  for (int t = end; t < to; ++t) scores[t] = -kInfinity;

  constexpr int kRegisters = kSoftmaxLanes / S::kWidth;
  typename S::F max_lanes = S::Set(-kInfinity);
  for (int t = from; t < to; t += S::kWidth) max_lanes = S::Max(max_lanes, S::Load(scores + t));
  float max = S::MaxLanes(max_lanes);
  typename S::F sums[kRegisters];
  for (int i = 0; i < kRegisters; ++i) sums[i] = S::Set(0.0f);
  for (int t = from; t < to; t += kSoftmaxLanes) {
    for (int i = 0; i < kRegisters; ++i) {
      float* lanes = scores + t + i * S::kWidth;
      typename S::F weights = ExpNonPositiveOf<S>(S::Sub(S::Load(lanes), S::Set(max)));
      S::Store(lanes, weights);
      sums[i] = S::Add(sums[i], weights);
    }
  }
  for (int half = kRegisters / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] = S::Add(sums[i], sums[i + half]);
  }
  return {max, S::SumLanes(sums[0])};
}

template <typename S>
void Merge(float* total, const float* part, int n, float total_factor, float part_factor) {
  typename S::F of_total = S::Set(total_factor);
  typename S::F of_part = S::Set(part_factor);
  int i = 0;
  for (; i + S::kWidth <= n; i += S::kWidth) {
    typename S::F scaled = S::Mul(S::Load(total + i), of_total);
    S::Store(total + i, S::Fma(S::Load(part + i), of_part, scaled));
  }
  for (; i < n; ++i) total[i] = __builtin_fmaf(part[i], part_factor, total[i] * total_factor);
}

// ---- encoding

// [width] channels of a row as stored, clamped to the codec's range (NaN passes); n of them exist.
template <typename S, typename Kv>
void EncodeLanes(const float* row, int n, typename Kv::Stored* out) {
  typename S::F x = n >= S::kWidth ? S::Load(row) : S::LoadPart(row, n, 0.0f);
  Kv::Store(out, S::Max(S::Set(-Kv::kMax), S::Min(S::Set(Kv::kMax), x)));
}

template <typename S, typename Kv>
void EncodeKeys(const EncodeTile& tile) {
  auto* keys = reinterpret_cast<typename Kv::Stored*>(tile.piece) + tile.first;
  for (int c = 0; c < tile.head_dim; c += S::kWidth) {
    int n = tile.head_dim - c < S::kWidth ? tile.head_dim - c : S::kWidth;
    for (int i = 0; i < tile.count; ++i) {
      typename Kv::Stored lanes[S::kWidth];
      EncodeLanes<S, Kv>(tile.rows + i * tile.row_stride + c, n, lanes);
      for (int j = 0; j < n; ++j) keys[(c + j) * tile.block_size + i] = lanes[j];
    }
  }
}

template <typename S, typename Kv>
void EncodeValues(const EncodeTile& tile) {
  auto* values = reinterpret_cast<typename Kv::Stored*>(tile.piece) + tile.first * tile.head_dim;
  for (int i = 0; i < tile.count; ++i, values += tile.head_dim) {
    const float* row = tile.rows + i * tile.row_stride;
    int c = 0;
    for (; c + S::kWidth <= tile.head_dim; c += S::kWidth) {
      EncodeLanes<S, Kv>(row + c, S::kWidth, values + c);
    }
    if (c == tile.head_dim) continue;
    typename Kv::Stored lanes[S::kWidth];
    EncodeLanes<S, Kv>(row + c, tile.head_dim - c, lanes);
    for (int j = 0; c + j < tile.head_dim; ++j) values[c + j] = lanes[j];
  }
}

template <typename S>
void Rotate(float* row, int head_dim) {
  RotateRow(row, head_dim);
}

template <typename S, typename Kv>
KvCodecKernels MakeCodecKernels() {
  return {Prepare<S>,          Scores<S, Kv>, AddValues<S, Kv>, EncodeKeys<S, Kv>,
          EncodeValues<S, Kv>, nullptr,       nullptr};
}

}  // namespace
}  // namespace quire::kernels
