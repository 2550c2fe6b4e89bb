#include "kernels/kv_token.h"

#include <cstring>

#include "base/check.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_codec_reference.h"
#include "kernels/kv_pieces.h"

namespace quire::kernels {
namespace {

// `rows` numbers of a token that lie a block apart: keys' codes and all scales per token.
template <typename Number>
void CopyLane(int rows, const Number* from, int from_stride, Number* to, int to_stride) {
  for (int i = 0; i < rows; ++i) to[i * to_stride] = from[i * from_stride];
}

// Keys are [head_dim, block_size], values [block_size, head_dim].
template <typename Number>
void CopyPlain(const TokenKind& kind, const TokenSource& from, const TokenTarget& to) {
  const auto* numbers = reinterpret_cast<const Number*>(from.piece);
  auto* out = reinterpret_cast<Number*>(to.piece);
  if (kind.plane == Plane::kKeys) {
    CopyLane(kind.head_dim, numbers + from.token, from.block_size, out + to.token, to.block_size);
  } else {
    std::memcpy(out + static_cast<ptrdiff_t>(to.token) * kind.head_dim,
                numbers + static_cast<ptrdiff_t>(from.token) * kind.head_dim,
                sizeof(Number) * kind.head_dim);
  }
}

// A lane of keys' codes is a token.
template <int kBits>
void CopyKeyCodes(int head_dim, const TokenSource& from, const TokenTarget& to) {
  using Words = CodeWords<kBits>;
  using Word = typename Words::Word;
  CopyLane(PaddedChannels(head_dim) / kChunk * Words::kPerChunk,
           reinterpret_cast<const Word*>(from.piece) + from.token, from.block_size,
           reinterpret_cast<Word*>(to.piece) + to.token, to.block_size);
}

// A lane of values' codes is a channel; a token is the same bits of a row of words.
template <int kBits>
void CopyValueCodes(int head_dim, const TokenSource& from, const TokenTarget& to) {
  using Words = CodeWords<kBits>;
  using Word = typename Words::Word;
  const auto* codes =
      reinterpret_cast<const Word*>(from.piece) + Words::Index(from.token, 0, head_dim);
  auto* out = reinterpret_cast<Word*>(to.piece) + Words::Index(to.token, 0, head_dim);
  const int from_shift = Words::Shift(from.token);
  const int to_shift = Words::Shift(to.token);
  const uint32_t keep = ~(static_cast<uint32_t>(Words::kMaxCode) << to_shift);
  for (int c = 0; c < head_dim; ++c) {
    const uint32_t code = uint32_t{codes[c]} >> from_shift & Words::kMaxCode;
    out[c] = static_cast<Word>((out[c] & keep) | code << to_shift);
  }
}

template <int kBits>
void CopyCoded(const TokenKind& kind, const TokenSource& from, const TokenTarget& to) {
  const int d = kind.head_dim;
  const bool keys = kind.plane == Plane::kKeys;
  if (keys) {
    CopyKeyCodes<kBits>(d, from, to);
  } else {
    CopyValueCodes<kBits>(d, from, to);
  }
  const auto code_bytes = [&](int tokens) {
    return keys ? KeyCodeBytes<kBits>(d, tokens) : ValueCodeBytes<kBits>(d, tokens);
  };
  const int groups = kBits == 8 ? Int8Groups(d) : KvGroups(d);
  const auto scales = GroupScales(from.piece, code_bytes(from.block_size), groups, from.block_size);
  const auto out = GroupScales(to.piece, code_bytes(to.block_size), groups, to.block_size);
  CopyLane(groups, scales.scale + from.token, from.block_size, out.scale + to.token, to.block_size);
  if (kBits == 8) return;
  CopyLane(groups, scales.min + from.token, from.block_size, out.min + to.token, to.block_size);
}

template <typename Format>
void DecodeFp8(const TokenKind& kind, const TokenSource& from, float* row) {
  const int d = kind.head_dim;
  const bool keys = kind.plane == Plane::kKeys;
  const auto* codes = reinterpret_cast<const uint8_t*>(from.piece);
  const float scale = Fp8Scale(from.piece, keys ? Fp8KeyCodeBytes(d, from.block_size)
                                                : Fp8ValueCodeBytes(d, from.block_size));
  for (int c = 0; c < d; ++c) {
    const size_t index =
        keys ? Fp8Index(c, from.token, from.block_size) : Fp8Index(from.token, c, d);
    row[c] = F32FromF8<Format>(codes[index]) * scale;
  }
}

template <int kBits>
void DecodeKiviKey(int head_dim, const TokenSource& from, float* row) {
  using Words = CodeWords<kBits>;
  const auto scales = GroupScales(from.piece, KeyCodeBytes<kBits>(head_dim, from.block_size),
                                  KiviTokenGroups(from.block_size), head_dim);
  const uint16_t* scale = scales.scale + from.token / kKvGroup * head_dim;
  const uint16_t* min = scales.min + from.token / kKvGroup * head_dim;
  for (int c = 0; c < head_dim; ++c) {
    const int code =
        Words::Get(from.piece, Words::Index(c, from.token, from.block_size), Words::Shift(c));
    // Exact in f64, rounded once.
    const double number = static_cast<double>(F32FromF16(scale[c])) * code + F32FromF16(min[c]);
    row[c] = static_cast<float>(number);
  }
}

}  // namespace

void CopyToken(const TokenKind& kind, const TokenSource& from, const TokenTarget& to) {
  QUIRE_CHECK(StoresTokensAlone(kind.codec, kind.plane));
  if (!IsQuantized(kind.codec)) {
    if (kind.codec == KvCodec::kF32) return CopyPlain<float>(kind, from, to);
    return CopyPlain<uint16_t>(kind, from, to);
  }
  switch (CodeBits(kind.codec)) {
    case 8:
      return CopyCoded<8>(kind, from, to);
    case 4:
      return CopyCoded<4>(kind, from, to);
    default:
      return CopyCoded<2>(kind, from, to);
  }
}

void DecodeToken(const TokenKind& kind, const TokenSource& from, float* row) {
  switch (kind.codec) {
    case KvCodec::kFp8E4M3:
      return DecodeFp8<E4M3>(kind, from, row);
    case KvCodec::kFp8E5M2:
      return DecodeFp8<E5M2>(kind, from, row);
    case KvCodec::kKivi4:
      if (kind.plane == Plane::kKeys) return DecodeKiviKey<4>(kind.head_dim, from, row);
      break;
    case KvCodec::kKivi2:
      if (kind.plane == Plane::kKeys) return DecodeKiviKey<2>(kind.head_dim, from, row);
      break;
    default:
      break;
  }
  // Of the others single tokens become f16, never a whole sequence.
  const PieceView view{kind.codec, from.piece, kind.head_dim, from.block_size};
  for (int c = 0; c < kind.head_dim; ++c) {
    row[c] = static_cast<float>(kind.plane == Plane::kKeys ? DecodedKey(view, from.token, c)
                                                           : DecodedValue(view, from.token, c));
  }
}

}  // namespace quire::kernels
