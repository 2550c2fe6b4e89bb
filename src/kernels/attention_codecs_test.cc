// The kernels of single codecs: what they store, and that every instruction set reads it as the
// plain loops do.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/attention_kernels.h"
#include "kernels/attention_math.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_codec_reference.h"

namespace quire::kernels {
namespace {

constexpr int kHeadDims[] = {64, 80, 96, 112, 128, 256};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<KvCodec> QuantizedCodecs() {
  std::vector<KvCodec> codecs;
  for (KvCodec codec : kAllKvCodecs) {
    if (IsQuantized(codec)) codecs.push_back(codec);
  }
  return codecs;
}

const AttentionKernels& ScalarTable() {
  return *AttentionKernelsFor(Isa::kScalar);
}

std::vector<int> BlockSizes(KvCodec codec) {
  return MinBlockSize(codec) == 32 ? std::vector{32, 64} : std::vector{16, 32, 64};
}

// A block of one head: [tokens, head_dim].
struct Rows {
  int tokens;
  int head_dim;
  std::vector<float> x;

  Rows(int tokens_, int head_dim_)
      : tokens(tokens_), head_dim(head_dim_), x(static_cast<size_t>(tokens_ * head_dim_)) {}
  float& at(int token, int channel) { return x[static_cast<size_t>(token * head_dim + channel)]; }
  float at(int token, int channel) const {
    return x[static_cast<size_t>(token * head_dim + channel)];
  }
};

Rows RandomRows(int tokens, int head_dim, uint64_t seed) {
  Rows rows(tokens, head_dim);
  base::CounterRng rng(seed, 1, 2);
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < head_dim; ++c) {
      const float x = static_cast<float>(rng.NextUnit() * 2.0 - 1.0);
      // Rounded to f16, so that sealing and encoding rows see the same numbers.
      rows.at(t, c) = F32FromF16(F16FromF32(x * (c % 16 == 3 ? 8.0f : 1.5f)));
    }
  }
  return rows;
}

// A block's keys and values, and a guard behind each.
struct Pieces {
  KvCodec codec;
  int head_dim;
  int block_size;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;

  static constexpr size_t kGuard = 64;
  Pieces(KvCodec codec_, int head_dim_, int block_size_)
      : codec(codec_),
        head_dim(head_dim_),
        block_size(block_size_),
        keys(KeyPieceBytes(codec, head_dim, block_size) + kGuard, std::byte{0xff}),
        values(ValuePieceBytes(codec, head_dim, block_size) + kGuard, std::byte{0xff}) {}

  void Encode(const AttentionKernels& table, const Rows& rows, int first = 0) {
    EncodeTile tile{.rows = rows.x.data(),
                    .row_stride = head_dim,
                    .count = rows.tokens,
                    .head_dim = head_dim,
                    .piece = keys.data(),
                    .block_size = block_size,
                    .first = first};
    table.codec(codec).encode_keys(tile);
    tile.piece = values.data();
    table.codec(codec).encode_values(tile);
  }
  void Seal(const AttentionKernels& table, const Rows& rows, int skip = 0) {
    Pieces halves(KvCodec::kF16, head_dim, block_size);
    halves.Encode(table, rows);
    Seal(table, halves, skip);
  }
  void Seal(const AttentionKernels& table, const Pieces& halves, int skip = 0) {
    table.codec(codec).seal_keys({halves.keys.data(), head_dim, block_size, skip, keys.data()});
    table.codec(codec).seal_values(
        {halves.values.data(), head_dim, block_size, skip, values.data()});
  }
  // As it is used: rows one by one where the codec can, else a whole block.
  void Store(const AttentionKernels& table, const Rows& rows) {
    if (IsSealed(codec)) {
      Seal(table, rows);
    } else {
      Encode(table, rows);
    }
  }
  double Key(int token, int channel) const {
    return DecodedKey({codec, keys.data(), head_dim, block_size}, token, channel);
  }
  double Value(int token, int channel) const {
    return DecodedValue({codec, values.data(), head_dim, block_size}, token, channel);
  }
  void ExpectGuardsIntact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(keys[keys.size() - 1 - i], std::byte{0xff});
      EXPECT_EQ(values[values.size() - 1 - i], std::byte{0xff});
    }
  }
};

// ---- what is stored

template <typename Format>
void ExpectFp8RoundTrips() {
  std::vector<float> all;
  for (int code = 0; code < 256; ++code) {
    const float x = F32FromF8<Format>(static_cast<uint8_t>(code));
    if (!std::isfinite(x) || std::fabs(x) > Format::kMax) continue;
    EXPECT_EQ(F8FromF32<Format>(x), code) << x;
    all.push_back(x);
  }
  std::sort(all.begin(), all.end());
  // Between neighbours: to the nearer one, to the even one in the middle.
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i] == all[i + 1]) continue;  // the zeros
    const float middle = (all[i] + all[i + 1]) / 2;
    const uint8_t below = F8FromF32<Format>(std::nextafter(middle, -kInf));
    const uint8_t above = F8FromF32<Format>(std::nextafter(middle, kInf));
    EXPECT_EQ(F32FromF8<Format>(below), all[i]);
    EXPECT_EQ(F32FromF8<Format>(above), all[i + 1]);
    EXPECT_EQ(F8FromF32<Format>(middle) % 2, 0) << middle;
  }
  EXPECT_EQ(F32FromF8<Format>(F8FromF32<Format>(kInf)), Format::kMax);
  EXPECT_EQ(F32FromF8<Format>(F8FromF32<Format>(-1e30f)), -Format::kMax);
  EXPECT_EQ(F8FromF32<Format>(kNaN), 0);
}

TEST(Fp8, EveryCodeRoundTripsAndEverythingElseGoesToTheNearest) {
  ExpectFp8RoundTrips<E4M3>();
  ExpectFp8RoundTrips<E5M2>();
}

// ---- round trips

// Everything that shares a scale with a token and channel: [first_token, last_token) and channels
// likewise.
struct Group {
  int first_token, last_token, first_channel, last_channel;
};

Group GroupOf(const Pieces& pieces, bool keys, int token, int channel) {
  const int d = pieces.head_dim;
  const int n = pieces.block_size;
  switch (pieces.codec) {
    case KvCodec::kFp8E4M3:
    case KvCodec::kFp8E5M2:
      return {0, n, 0, d};
    case KvCodec::kInt8: {
      const int first = channel / 128 * 128;
      return {token, token + 1, first, std::min(first + 128, d)};
    }
    default:
      break;
  }
  if (keys && pieces.codec != KvCodec::kInt4) {
    const int first = token / 32 * 32;
    return {first, std::min(first + 32, n), channel, channel + 1};
  }
  const int groups = std::max(d / 32, 1);
  const int group = std::min(channel / 32, groups - 1);
  return {token, token + 1, group * 32, group + 1 == groups ? d : group * 32 + 32};
}

// The largest error that a codec's step allows for x in a group of [low, high]: half a step, with
// f16 scales (rounded up by at most 2^-10) and minima (2^-11 of themselves).
double HalfStep(KvCodec codec, double x, double low, double high) {
  const double largest = std::max(std::fabs(low), std::fabs(high));
  switch (codec) {
    case KvCodec::kFp8E4M3:
      return std::max(std::fabs(x) / 16, largest / 448 * 0x1p-10) * (1 + 1e-6);
    case KvCodec::kFp8E5M2:
      return std::max(std::fabs(x) / 8, largest / 57344 * 0x1p-17) * (1 + 1e-6);
    case KvCodec::kInt8:
      return largest / 254 * (1 + 0x1p-9) + 0x1p-25;
    default: {
      const double min_error = std::fabs(low) * 0x1p-11 + 0x1p-25;
      const double step = (high - low + min_error) / ((1 << CodeBits(codec)) - 1);
      return step * (1 + 0x1p-9) / 2 + min_error + 0x1p-25;
    }
  }
}

void ExpectWithinHalfAStep(const Pieces& pieces, const Rows& rows, bool keys) {
  for (int t = 0; t < rows.tokens; ++t) {
    for (int c = 0; c < rows.head_dim; ++c) {
      const Group group = GroupOf(pieces, keys, t, c);
      double low = rows.at(t, c), high = rows.at(t, c);
      for (int i = group.first_token; i < group.last_token; ++i) {
        for (int j = group.first_channel; j < group.last_channel; ++j) {
          low = std::min<double>(low, rows.at(i, j));
          high = std::max<double>(high, rows.at(i, j));
        }
      }
      const double stored = keys ? pieces.Key(t, c) : pieces.Value(t, c);
      double allowed = HalfStep(pieces.codec, rows.at(t, c), low, high);
      // A fit lowers a group's squared error, which one number may have all of.
      if (pieces.codec == KvCodec::kInt4) {
        allowed *= std::sqrt(group.last_channel - group.first_channel);
      }
      ASSERT_NEAR(stored, rows.at(t, c), allowed) << (keys ? "key " : "value ") << t << ", " << c;
      if (group.last_token - group.first_token > 1 && group.last_channel > group.first_channel + 1)
        c += 6;  // fp8: the whole piece shares its scale
    }
  }
}

// Every group has a magnitude of its own, so a number read with another group's scale is far off.
TEST(KvCodecs, EveryNumberIsWithinHalfAStepOfItsOwnGroup) {
  for (KvCodec codec : QuantizedCodecs()) {
    for (int head_dim : {8, 20, 32, 64, 80, 96, 112, 128, 256}) {
      for (int block_size : BlockSizes(codec)) {
        SCOPED_TRACE(fmt::format("{} head size {} block {}", Name(codec), head_dim, block_size));
        for (bool keys : {true, false}) {
          Rows rows = RandomRows(block_size, head_dim, 11);
          Pieces pieces(codec, head_dim, block_size);
          for (int t = 0; t < block_size; ++t) {
            for (int c = 0; c < head_dim; ++c) {
              const Group group = GroupOf(pieces, keys, t, c);
              const int which = group.first_token * 7 + group.first_channel / 32 * 3 +
                                (group.last_channel == c + 1 ? c * 5 : 0);
              rows.at(t, c) *= std::ldexp(1.0f, which % 9 - 4);
            }
          }
          pieces.Store(ScalarTable(), rows);
          pieces.ExpectGuardsIntact();
          ExpectWithinHalfAStep(pieces, rows, keys);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Kivi4's values go from the smallest number of the same groups to the largest.
TEST(KvCodecs, Int4ComesCloserToEveryGroupThanItsRangeAlone) {
  for (int head_dim : {8, 32, 80, 128}) {
    const Rows rows = RandomRows(32, head_dim, 9);
    Pieces fitted(KvCodec::kInt4, head_dim, 32);
    Pieces range(KvCodec::kKivi4, head_dim, 32);
    fitted.Store(ScalarTable(), rows);
    range.Store(ScalarTable(), rows);
    double fitted_total = 0, range_total = 0;
    for (int t = 0; t < 32; ++t) {
      for (int c = 0; c < head_dim;) {
        const Group group = GroupOf(fitted, false, t, c);
        double keys = 0, values = 0, without = 0;
        for (; c < group.last_channel; ++c) {
          const double x = rows.at(t, c);
          keys += std::pow(fitted.Key(t, c) - x, 2);
          values += std::pow(fitted.Value(t, c) - x, 2);
          without += std::pow(range.Value(t, c) - x, 2);
        }
        ASSERT_LE(values, without * (1 + 1e-4)) << head_dim << " token " << t;
        ASSERT_EQ(keys, values) << head_dim << " token " << t;
        fitted_total += values;
        range_total += without;
      }
    }
    EXPECT_LE(fitted_total, 0.9 * range_total) << head_dim;
  }
}

// Numbers that lie on a group's grid come back exactly, whatever the code: 2^bits of them spread
// over tokens and channels in every position of a word.
TEST(KvCodecs, EveryCodeRoundTripsInEveryPlaceOfAWord) {
  for (KvCodec codec : {KvCodec::kInt8, KvCodec::kInt4, KvCodec::kKivi4, KvCodec::kKivi2}) {
    const int codes = codec == KvCodec::kInt8 ? 255 : 1 << CodeBits(codec);
    const int low = codec == KvCodec::kInt8 ? -127 : 0;
    for (int head_dim : kHeadDims) {
      for (int turn = 0; turn<codes; turn += codes> 16 ? 16 : 1) {
        Rows rows(64, head_dim);
        for (int t = 0; t < 64; ++t) {
          for (int c = 0; c < head_dim; ++c) rows.at(t, c) = low + (t * 5 + c * 3 + turn) % codes;
          // Both ends of the range in every group, tokens' and channels'.
          for (int c = 0; c < head_dim; c += 32) {
            rows.at(t, c + t % 16) = low;
            rows.at(t, c + (t + 1) % 16) = low + codes - 1;
          }
        }
        for (int c = 0; c < head_dim; ++c) {
          for (int t : {0, 32}) {
            rows.at(t + c % 32, c) = low;
            rows.at(t + (c + 1) % 32, c) = low + codes - 1;
          }
        }
        Pieces pieces(codec, head_dim, 64);
        pieces.Store(ScalarTable(), rows);
        for (int t = 0; t < 64; ++t) {
          for (int c = 0; c < head_dim; ++c) {
            ASSERT_EQ(pieces.Key(t, c), rows.at(t, c)) << Name(codec) << " " << t << " " << c;
          }
        }
      }
    }
  }
}

TEST(KvCodecs, SealingEqualsEncodingRowsOneByOne) {
  for (KvCodec codec : {KvCodec::kInt8, KvCodec::kInt4}) {
    for (int head_dim : {20, 64, 80, 256}) {
      const Rows rows = RandomRows(32, head_dim, 5);
      Pieces sealed(codec, head_dim, 32);
      sealed.Seal(ScalarTable(), rows);
      Pieces encoded(codec, head_dim, 32);
      for (int t = 0; t < 32; ++t) {
        Rows row(1, head_dim);
        for (int c = 0; c < head_dim; ++c) row.at(0, c) = rows.at(t, c);
        encoded.Encode(ScalarTable(), row, t);
      }
      EXPECT_EQ(sealed.values, encoded.values);
      for (int t = 0; t < 32; ++t) {
        for (int c = 0; c < head_dim; ++c) ASSERT_EQ(sealed.Key(t, c), encoded.Key(t, c));
      }
    }
  }
}

TEST(KvCodecs, SkippedTokensCountInNoScaleAndAreZeros) {
  for (KvCodec codec : QuantizedCodecs()) {
    for (int skip : {1, 4, 32}) {
      Rows rows = RandomRows(64, 96, 3);
      Rows without = rows;
      for (int t = 0; t < skip; ++t) {
        for (int c = 0; c < 96; ++c) {
          rows.at(t, c) = 6e4f;
          without.at(t, c) = t % 2 == 0 ? kNaN : -3.0f;
        }
      }
      Pieces a(codec, 96, 64), b(codec, 96, 64);
      a.Seal(ScalarTable(), rows, skip);
      b.Seal(ScalarTable(), without, skip);
      EXPECT_EQ(a.keys, b.keys);
      EXPECT_EQ(a.values, b.values);
    }
  }
}

TEST(KvCodecs, ConstantsZerosAndTheSmallestNumbersAreKept) {
  for (KvCodec codec : QuantizedCodecs()) {
    for (float x : {0.0f, -0.0f, 1.0f, -3.5f, 65504.0f, -60000.0f, 0x1p-14f, 0x1p-24f, 1e-40f}) {
      Rows rows(32, 80);
      std::fill(rows.x.begin(), rows.x.end(), x);
      Pieces pieces(codec, 80, 32);
      pieces.Store(ScalarTable(), rows);
      for (int t = 0; t < 32; ++t) {
        for (int c = 0; c < 80; ++c) {
          ASSERT_NEAR(pieces.Key(t, c), x, std::fabs(x) * 0x1p-9 + 0x1p-25) << Name(codec);
          ASSERT_NEAR(pieces.Value(t, c), x, std::fabs(x) * 0x1p-9 + 0x1p-25) << Name(codec);
        }
      }
    }
  }
}

// One token (or one channel of one token) is beyond f16; all others must be as good as without.
TEST(KvCodecs, InfinityAndNaNSpoilNoOtherNumber) {
  for (KvCodec codec : QuantizedCodecs()) {
    for (float bad : {kInf, -kInf, kNaN, 1e30f, -3e38f}) {
      for (bool whole_token : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} {}", Name(codec), bad, whole_token));
        const Rows good = RandomRows(32, 96, 8);
        Rows rows = good;
        for (int c = whole_token ? 0 : 40; c < (whole_token ? 96 : 41); ++c) rows.at(17, c) = bad;
        Pieces pieces(codec, 96, 32);
        if (IsSealed(codec)) {  // f16 pieces saturate, but hold whatever bits they are given
          Pieces halves(KvCodec::kF16, 96, 32);
          halves.Encode(ScalarTable(), rows);
          for (int c = whole_token ? 0 : 40; c < (whole_token ? 96 : 41); ++c) {
            const uint16_t bits = F16FromF32(bad);
            reinterpret_cast<uint16_t*>(halves.keys.data())[c * 32 + 17] = bits;
            reinterpret_cast<uint16_t*>(halves.values.data())[17 * 96 + c] = bits;
          }
          pieces.Seal(ScalarTable(), halves);
        } else {
          pieces.Encode(ScalarTable(), rows);
        }
        for (int t = 0; t < 32; ++t) {
          for (int c = 0; c < 96; ++c) {
            const double error = HalfStep(codec, good.at(t, c), -8, 8);
            const bool is_bad = rows.at(t, c) != good.at(t, c);
            if (is_bad) {
              ASSERT_TRUE(std::isfinite(pieces.Key(t, c)));
              ASSERT_TRUE(std::isfinite(pieces.Value(t, c)));
              if (bad > 0) {
                ASSERT_GE(pieces.Key(t, c), 0);
              } else if (bad < 0) {
                ASSERT_LE(pieces.Key(t, c), 0);
              }
            } else {
              ASSERT_NEAR(pieces.Key(t, c), good.at(t, c), error) << t << " " << c;
              ASSERT_NEAR(pieces.Value(t, c), good.at(t, c), error) << t << " " << c;
            }
          }
        }
      }
    }
  }
}

TEST(KvCodecs, BitsPerNumberKeepTheirBounds) {
  for (int head_dim : kHeadDims) {
    EXPECT_LE(BitsPerValue(KvCodec::kInt8, head_dim, 32), 8.5) << head_dim;
    EXPECT_LE(BitsPerValue(KvCodec::kFp8E4M3, head_dim, 32), 8.5) << head_dim;
    EXPECT_LE(BitsPerValue(KvCodec::kFp8E5M2, head_dim, 32), 8.5) << head_dim;
    EXPECT_LE(BitsPerValue(KvCodec::kInt4, head_dim, 32), 5.0) << head_dim;
    EXPECT_LE(BitsPerValue(KvCodec::kKivi4, head_dim, 32), 5.0) << head_dim;
    EXPECT_LE(BitsPerValue(KvCodec::kKivi2, head_dim, 32), 3.0) << head_dim;
  }
}

// ---- rotation

TEST(Rotation, IsItsOwnInverseKeepsLengthsAndIsTheSameOnEveryInstructionSet) {
  for (const KernelTable& table : AvailableKernels()) {
    for (int head_dim : {1, 5, 8, 64, 80, 96, 112, 128, 256}) {
      const Rows rows = RandomRows(1, head_dim, 21);
      std::vector<float> x = rows.x;
      table.attention->rotate(x.data(), head_dim);
      std::vector<float> scalar = rows.x;
      ScalarTable().rotate(scalar.data(), head_dim);
      EXPECT_EQ(x, scalar);
      double before = 0, after = 0;
      for (int c = 0; c < head_dim; ++c) {
        before += static_cast<double>(rows.x[c]) * rows.x[c];
        after += static_cast<double>(x[c]) * x[c];
      }
      EXPECT_NEAR(before, after, before * 1e-5);
      table.attention->rotate(x.data(), head_dim);
      for (int c = 0; c < head_dim; ++c) EXPECT_NEAR(x[c], rows.x[c], 1e-5) << c;
    }
  }
}

TEST(Rotation, SpreadsOneChannelOverItsPowerOfTwo) {
  for (auto [head_dim, channel, first, size] :
       {std::tuple(80, 3, 0, 64), std::tuple(80, 70, 64, 16), std::tuple(112, 100, 96, 16),
        std::tuple(112, 80, 64, 32), std::tuple(128, 127, 0, 128)}) {
    std::vector<float> x(head_dim, 0.0f);
    x[channel] = 1.0f;
    ScalarTable().rotate(x.data(), head_dim);
    for (int c = 0; c < head_dim; ++c) {
      const bool inside = c >= first && c < first + size;
      EXPECT_NEAR(std::fabs(x[c]), inside ? 1 / std::sqrt(size) : 0.0, 1e-7) << c;
    }
  }
}

// ---- reading

struct Readings {
  std::vector<float> scores;  // [rows, kSpan]
  std::vector<float> out;     // [rows, head_dim]
};

struct ReadCase {
  int rows;
  int begin;
  int end;
};

Readings Read(const AttentionKernels& table, const Pieces& pieces, ReadCase c) {
  const int d = pieces.head_dim;
  const KvCodecKernels& kernels = table.codec(pieces.codec);
  const Rows q = RandomRows(c.rows, d, 31);
  base::CounterRng rng(7, 8, 9);
  std::vector<float> weights(static_cast<size_t>(c.rows) * kSpan, kNaN);
  for (int r = 0; r < c.rows; ++r) {
    for (int t = c.begin; t < c.end; ++t) {
      weights[r * kSpan + t] = t % 5 == r ? 0.0f : static_cast<float>(rng.NextUnit());
    }
  }
  Readings out{std::vector<float>(static_cast<size_t>(c.rows) * kSpan),
               RandomRows(c.rows, d, 41).x};
  std::vector<std::byte> prepared(c.rows * PreparedQueryBytes(d));
  kernels.prepare({q.x.data(), c.rows, d, prepared.data()});
  kernels.scores({.q = prepared.data(),
                  .rows = c.rows,
                  .head_dim = d,
                  .keys = pieces.keys.data(),
                  .block_size = pieces.block_size,
                  .begin = c.begin,
                  .end = c.end,
                  .scores = out.scores.data(),
                  .next = nullptr});
  kernels.add_values({.weights = weights.data(),
                      .rows = c.rows,
                      .head_dim = d,
                      .values = pieces.values.data(),
                      .block_size = pieces.block_size,
                      .begin = c.begin,
                      .end = c.end,
                      .out = out.out.data(),
                      .next = nullptr});
  for (int r = 0; r < c.rows; ++r) {  // what lies outside may be written
    for (int t = 0; t < kSpan; ++t) {
      if (t < c.begin || t >= c.end) out.scores[r * kSpan + t] = 0.0f;
    }
  }
  return out;
}

TEST(KvCodecs, EveryInstructionSetReadsTheSameBits) {
  for (const KernelTable& table : AvailableKernels()) {
    if (table.isa == Isa::kScalar) continue;
    for (KvCodec codec : kAllKvCodecs) {
      for (int head_dim : {16, 20, 64, 80, 96, 112, 128, 256}) {
        for (int block_size : BlockSizes(codec)) {
          Pieces pieces(codec, head_dim, block_size);
          pieces.Store(ScalarTable(), RandomRows(block_size, head_dim, 51));
          for (int rows = 1; rows <= kRowTile; ++rows) {
            for (auto [begin, end] :
                 {std::pair(0, block_size), std::pair(0, 1), std::pair(3, block_size - 1),
                  std::pair(block_size / 2, 15 + block_size / 2)}) {
              SCOPED_TRACE(fmt::format("{} {} head size {} block {} rows {} [{}, {})", table.name,
                                       Name(codec), head_dim, block_size, rows, begin, end));
              if (begin >= end || end > block_size) continue;
              const Readings a = Read(ScalarTable(), pieces, {rows, begin, end});
              const Readings b = Read(*table.attention, pieces, {rows, begin, end});
              ASSERT_EQ(std::memcmp(a.scores.data(), b.scores.data(), a.scores.size() * 4), 0);
              ASSERT_EQ(std::memcmp(a.out.data(), b.out.data(), a.out.size() * 4), 0);
            }
          }
        }
      }
    }
  }
}

// What a tile does not cover may hold anything, scales included.
TEST(KvCodecs, UnwrittenTokensAreNeverLookedAt) {
  for (const KernelTable& table : AvailableKernels()) {
    for (KvCodec codec : kAllKvCodecs) {
      if (IsSealed(codec)) continue;
      const Rows rows = RandomRows(32, 64, 61);
      Pieces whole(codec, 64, 32);
      whole.Store(ScalarTable(), rows);
      Rows first_rows(13, 64);
      std::copy_n(rows.x.begin(), first_rows.x.size(), first_rows.x.begin());
      Pieces part(codec, 64, 32);  // all ones: NaN wherever a scale is
      part.Encode(ScalarTable(), first_rows);
      const Readings a = Read(*table.attention, whole, {4, 0, 13});
      const Readings b = Read(*table.attention, part, {4, 0, 13});
      EXPECT_EQ(a.scores, b.scores) << table.name << " " << Name(codec);
      EXPECT_EQ(a.out, b.out) << table.name << " " << Name(codec);
    }
  }
}

}  // namespace
}  // namespace quire::kernels
