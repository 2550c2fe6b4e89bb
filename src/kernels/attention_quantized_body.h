// The bodies of attention's kernels on 8-bit floats, and what all quantized kernels share, written
// once over a SIMD wrapper S. Included after attention_kernels_body.h, under the same rules. What
// they compute: attention_scalar_quantized.cc.
#pragma once

namespace quire::kernels {
namespace {

// ---- lanes

// Registers of lanes that a row tile of integers takes at once.
template <typename S>
constexpr int IntegerRegisters(int rows) {
  const int most = kAccumulators<S> / rows;
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// Calls op.operator()<kRegisters>(lane) for lanes [begin, end) in pieces of whole registers, as
// many at once as a tile of kRows allows; end - begin is a multiple of 16.
template <typename S, int kRows, typename Op>
[[gnu::always_inline]] inline void ForEachLanes(int begin, int end, Op op) {
  constexpr int kMost = IntegerRegisters<S>(kRows);
  int lane = begin;
  if constexpr (kMost >= 4) {
    for (; lane + 4 * S::kWidth <= end; lane += 4 * S::kWidth) op.template operator()<4>(lane);
  }
  if constexpr (kMost >= 2) {
    for (; lane + 2 * S::kWidth <= end; lane += 2 * S::kWidth) op.template operator()<2>(lane);
  }
  for (; lane < end; lane += S::kWidth) op.template operator()<1>(lane);
}

// Asks for `bytes` at `next` in as many steps as ForEachLanes makes over `lanes` lanes, each with
// `steps` steps of its own.
template <typename S, int kRows>
Prefetcher PrefetcherFor(const std::byte* next, size_t bytes, int steps, int lanes) {
  constexpr int kMost = IntegerRegisters<S>(kRows) * S::kWidth;
  const int all = steps * ((lanes + kMost - 1) / kMost);
  return Prefetcher(next, (static_cast<int>(bytes) + all - 1) / all);
}

template <typename S, int kRows, int kRegisters>
[[gnu::always_inline]] inline void ClearFloats(typename S::F (&sums)[kRows][kRegisters]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = S::Set(0.0f);
  }
}

// ---- fp8

// sums[r][i] += the products of four numbers' codes, lanes of `words` onwards, and each row's
// factors: number k's of row r at factors[k * next + r * stride].
template <typename S, typename Format, int kRows, int kRegisters>
[[gnu::always_inline]] inline void AddFp8Products(const uint32_t* words, const float* factors,
                                                  int next, int stride,
                                                  typename S::F (&sums)[kRows][kRegisters]) {
  const auto mask = S::SetInt(static_cast<int32_t>(Format::kMask));
  typename S::I word[kRegisters];
#pragma GCC unroll 4
  for (int i = 0; i < kRegisters; ++i) word[i] = S::LoadInts(words + i * S::kWidth);
  auto add = [&]<int kLeft>(const float* factor) __attribute__((always_inline)) {
    typename S::F value[kRegisters];
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      auto code = S::template ShiftRight<Format::kShift>(S::template ShiftLeft<kLeft>(word[i]));
      value[i] = S::FromBits(S::And(code, mask));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename S::F x = S::Set(factor[r * stride]);
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) sums[r][i] = S::Fma(x, value[i], sums[r][i]);
    }
  };
  add.template operator()<24>(factors);
  add.template operator()<16>(factors + next);
  add.template operator()<8>(factors + 2 * next);
  add.template operator()<0>(factors + 3 * next);
}

template <typename Format>
constexpr float kHalfGap = static_cast<float>(uint64_t{1} << Format::kExponentGap / 2);

template <typename S, typename Format, int kRows>
void Fp8ScoreRows(const ScoreTile& tile) {
  const int n = tile.block_size;
  const int steps = PaddedFp8Channels(tile.head_dim) / 4;
  const auto* q = reinterpret_cast<const float*>(tile.q);
  const auto* words = reinterpret_cast<const uint32_t*>(tile.keys);
  const auto scale =
      S::Set(Fp8Scale(tile.keys, Fp8KeyCodeBytes(tile.head_dim, n)) * kHalfGap<Format>);
  const int begin = tile.begin / 16 * 16;
  const int end = (tile.end + 15) / 16 * 16;
  Prefetcher prefetcher = PrefetcherFor<S, kRows>(
      tile.next, KeyPieceBytes(KvCodec::kFp8E4M3, tile.head_dim, n), steps, end - begin);
  ForEachLanes<S, kRows>(begin, end, [&]<int kRegisters>(int token) {
    typename S::F sums[kRows][kRegisters];
    ClearFloats<S>(sums);
    for (int step = 0; step < steps; ++step) {
      prefetcher.Advance();
      AddFp8Products<S, Format>(words + step * n + token, q + step * 4 * kRows, kRows, 1, sums);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        S::Store(tile.scores + r * kSpan + token + i * S::kWidth, S::Mul(sums[r][i], scale));
      }
    }
  });
}

template <typename S, typename Format, int kRows>
void Fp8AddRows(const ValueTile& tile) {
  const int d = tile.head_dim;
  const float scale = Fp8Scale(tile.values, Fp8ValueCodeBytes(d, tile.block_size)) *
                      kHalfGap<Format> * kHalfGap<Format>;
  const int begin = tile.begin / 4 * 4;
  const int end = (tile.end + 3) / 4 * 4;
  alignas(64) float weights[kRows][kSpan];
  for (int r = 0; r < kRows; ++r) {
    for (int t = tile.begin / 16 * 16; t < tile.end; t += S::kWidth) {
      S::Store(weights[r] + t, S::Mul(S::Load(tile.weights + r * kSpan + t), S::Set(scale)));
    }
    for (int t = begin; t < tile.begin; ++t) weights[r][t] = 0.0f;
    for (int t = tile.end; t < end; ++t) weights[r][t] = 0.0f;
  }
  const auto* words = reinterpret_cast<const uint32_t*>(tile.values);
  Prefetcher prefetcher = PrefetcherFor<S, kRows>(
      tile.next, ValuePieceBytes(KvCodec::kFp8E4M3, d, tile.block_size), (end - begin) / 4, d);
  ForEachLanes<S, kRows>(0, d, [&]<int kRegisters>(int channel) {
    typename S::F sums[kRows][kRegisters];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        sums[r][i] = S::Load(tile.out + r * d + channel + i * S::kWidth);
      }
    }
    for (int t = begin; t < end; t += 4) {
      prefetcher.Advance();
      AddFp8Products<S, Format>(words + t / 4 * d + channel, weights[0] + t, 1, kSpan, sums);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kRegisters; ++i) {
        S::Store(tile.out + r * d + channel + i * S::kWidth, sums[r][i]);
      }
    }
  });
}

}  // namespace
}  // namespace quire::kernels
