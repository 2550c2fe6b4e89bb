#include "kernels/kv_token.h"

#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/attention_kernels.h"
#include "kernels/kv_codec_reference.h"

namespace quire::kernels {
namespace {

struct Piece {
  TokenKind kind;
  int block_size;
  std::vector<std::byte> bytes;

  // Of random numbers that f16 holds.
  Piece(const TokenKind& kind_, int block_size_, uint64_t seed)
      : kind(kind_), block_size(block_size_) {
    const int d = kind.head_dim;
    const bool keys = kind.plane == Plane::kKeys;
    base::CounterRng rng(seed, 1, 2);
    std::vector<float> rows(static_cast<size_t>(block_size) * d);
    for (float& x : rows) x = static_cast<float>(rng.NextBelow(4096)) / 256 - 8;
    const AttentionKernels& scalar = *AttentionKernelsFor(Isa::kScalar);
    const auto encode = [&](KvCodec codec) {
      std::vector<std::byte> piece(keys ? KeyPieceBytes(codec, d, block_size)
                                        : ValuePieceBytes(codec, d, block_size));
      const KvCodecKernels& table = scalar.codec(codec);
      (keys ? table.encode_keys
            : table.encode_values)({rows.data(), d, block_size, d, piece.data(), block_size, 0});
      return piece;
    };
    if (!IsSealed(kind.codec)) {
      bytes = encode(kind.codec);
      return;
    }
    const std::vector<std::byte> full = encode(KvCodec::kF16);
    bytes.resize(keys ? KeyPieceBytes(kind.codec, d, block_size)
                      : ValuePieceBytes(kind.codec, d, block_size));
    const KvCodecKernels& table = scalar.codec(kind.codec);
    (keys ? table.seal_keys : table.seal_values)({full.data(), d, block_size, 0, bytes.data()});
  }

  double At(int token, int channel) const {
    const PieceView view{kind.codec, bytes.data(), kind.head_dim, block_size};
    return kind.plane == Plane::kKeys ? DecodedKey(view, token, channel)
                                      : DecodedValue(view, token, channel);
  }
};

TEST(KvToken, ACopyDecodesAsTheOriginalAndMovesNoOtherToken) {
  int copies = 0;
  for (KvCodec codec : kAllKvCodecs) {
    for (Plane plane : {Plane::kKeys, Plane::kValues}) {
      if (!StoresTokensAlone(codec, plane)) continue;
      for (int head_dim : {8, 40, 64, 80, 128, 256}) {
        for (int block_size : {16, 32, 64}) {
          if (block_size < MinBlockSize(codec)) continue;
          const TokenKind kind{codec, plane, head_dim};
          SCOPED_TRACE(fmt::format("{} plane {} head size {} block {}", Name(codec),
                                   static_cast<int>(plane), head_dim, block_size));
          const Piece from(kind, block_size, 1);
          for (int token = 0; token < block_size; token += 5) {
            const int to_token = (token * 7 + 3) % block_size;
            Piece to(kind, block_size, 2);
            const Piece before = to;
            CopyToken(kind, {from.bytes.data(), block_size, token},
                      {to.bytes.data(), block_size, to_token});
            ++copies;
            for (int t = 0; t < block_size; ++t) {
              for (int c = 0; c < head_dim; ++c) {
                ASSERT_EQ(to.At(t, c), t == to_token ? from.At(token, c) : before.At(t, c))
                    << "token " << t << " channel " << c;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(copies, 500);
}

TEST(KvToken, CopiesGoBetweenBlocksOfDifferentSize) {
  for (Plane plane : {Plane::kKeys, Plane::kValues}) {
    const TokenKind kind{KvCodec::kF16, plane, 20};
    const Piece from(kind, 32, 1);
    Piece to(kind, 16, 2);
    CopyToken(kind, {from.bytes.data(), 32, 29}, {to.bytes.data(), 16, 3});
    for (int c = 0; c < 20; ++c) ASSERT_EQ(to.At(3, c), from.At(29, c));
  }
}

TEST(KvToken, DecodedRowsAreTheStoredNumbers) {
  for (KvCodec codec : kAllKvCodecs) {
    for (Plane plane : {Plane::kKeys, Plane::kValues}) {
      const TokenKind kind{codec, plane, 80};
      const Piece piece(kind, 32, 3);
      for (int token : {0, 17, 31}) {
        float row[80];
        DecodeToken(kind, {piece.bytes.data(), 32, token}, row);
        for (int c = 0; c < 80; ++c) ASSERT_EQ(row[c], static_cast<float>(piece.At(token, c)));
      }
    }
  }
}

}  // namespace
}  // namespace quire::kernels
