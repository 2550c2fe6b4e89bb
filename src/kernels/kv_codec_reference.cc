#include "kernels/kv_codec_reference.h"

#include <cstring>

#include "kernels/fp8.h"
#include "kernels/half.h"
#include "kernels/kv_pieces.h"

namespace quire::kernels {
namespace {

// A number that is stored by itself, at `index`.
double Plain(const PieceView& view, int index) {
  if (view.codec == KvCodec::kF32) {
    float x;
    std::memcpy(&x, view.piece + static_cast<size_t>(index) * sizeof(float), sizeof(x));
    return x;
  }
  const uint16_t half = reinterpret_cast<const uint16_t*>(view.piece)[index];
  return view.codec == KvCodec::kF16 ? F32FromF16(half) : F32FromBf16(half);
}

double Fp8(const PieceView& view, size_t code_bytes, size_t index) {
  const auto code = static_cast<uint8_t>(view.piece[index]);
  const double number =
      view.codec == KvCodec::kFp8E4M3 ? F32FromF8<E4M3>(code) : F32FromF8<E5M2>(code);
  return number * Fp8Scale(view.piece, code_bytes);
}

bool IsFp8(KvCodec codec) {
  return codec == KvCodec::kFp8E4M3 || codec == KvCodec::kFp8E5M2;
}

// Where a code lies: along the summed dimension, and its lane of so many.
struct CodePlace {
  int along;
  int lane;
  int lanes;
};

template <int kBits>
int Code(const PieceView& view, CodePlace place) {
  using Words = CodeWords<kBits>;
  return Words::Get(view.piece, Words::Index(place.along, place.lane, place.lanes),
                    Words::Shift(place.along));
}

int Code(const PieceView& view, CodePlace place) {
  switch (CodeBits(view.codec)) {
    case 8:
      return Code<8>(view, place);
    case 4:
      return Code<4>(view, place);
    default:
      return Code<2>(view, place);
  }
}

double Number(int code, uint16_t scale, uint16_t min) {
  return static_cast<double>(F32FromF16(scale)) * code + F32FromF16(min);
}

// A number whose scale belongs to a token and a group of channels.
double PerToken(const PieceView& view, size_t code_bytes, CodePlace place, int token, int channel) {
  const int code = Code(view, place);
  const int n = view.block_size;
  if (view.codec == KvCodec::kInt8) {
    const auto scales = GroupScales(view.piece, code_bytes, Int8Groups(view.head_dim), n);
    return Number(code, scales.scale[channel / kInt8Group * n + token], 0);
  }
  const auto scales = GroupScales(view.piece, code_bytes, KvGroups(view.head_dim), n);
  const int at = KvGroupOf(channel, view.head_dim) * n + token;
  return Number(code, scales.scale[at], scales.min[at]);
}

}  // namespace

double DecodedKey(const PieceView& keys, int token, int channel) {
  const int n = keys.block_size;
  const int d = keys.head_dim;
  if (!IsQuantized(keys.codec)) return Plain(keys, channel * n + token);
  if (IsFp8(keys.codec)) return Fp8(keys, Fp8KeyCodeBytes(d, n), Fp8Index(channel, token, n));
  const size_t code_bytes = static_cast<size_t>(PaddedChannels(d) * n * CodeBits(keys.codec) / 8);
  const CodePlace place{channel, token, n};
  if (keys.codec == KvCodec::kInt8 || keys.codec == KvCodec::kInt4) {
    return PerToken(keys, code_bytes, place, token, channel);
  }
  const auto scales = GroupScales(keys.piece, code_bytes, KiviTokenGroups(n), d);
  const int at = token / kKvGroup * d + channel;
  return Number(Code(keys, place), scales.scale[at], scales.min[at]);
}

double DecodedValue(const PieceView& values, int token, int channel) {
  const int d = values.head_dim;
  if (!IsQuantized(values.codec)) return Plain(values, token * d + channel);
  if (IsFp8(values.codec)) {
    return Fp8(values, Fp8ValueCodeBytes(d, values.block_size), Fp8Index(token, channel, d));
  }
  const size_t code_bytes = static_cast<size_t>(d * values.block_size * CodeBits(values.codec) / 8);
  return PerToken(values, code_bytes, {token, channel, d}, token, channel);
}

}  // namespace quire::kernels
