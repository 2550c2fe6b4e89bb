// Single tokens of pieces: copied from one piece to another as they are stored, or decoded. What
// token eviction moves tokens with.
#pragma once

#include <cstddef>

#include "kernels/kv_codec.h"

namespace quire::kernels {

// Whether a token's stored numbers depend on no other token of the block, so that it can be copied
// code for code.
constexpr bool StoresTokensAlone(KvCodec codec, Plane plane) {
  return !IsSealed(codec) ||
         (plane == Plane::kValues && (codec == KvCodec::kKivi4 || codec == KvCodec::kKivi2));
}

struct TokenSource {
  const std::byte* piece = nullptr;
  int block_size = 0;  // of the piece
  int token = 0;
};
struct TokenTarget {
  std::byte* piece = nullptr;
  int block_size = 0;
  int token = 0;
};

// What kind of piece both ends are.
struct TokenKind {
  KvCodec codec = KvCodec::kF16;
  Plane plane = Plane::kKeys;
  int head_dim = 0;
};

// Copies a token with its scales, bit for bit; of a codec that StoresTokensAlone. Other tokens of
// the target stay as they are.
void CopyToken(const TokenKind& kind, const TokenSource& from, const TokenTarget& to);

// The numbers of a token, [head_dim], rounded to f32.
void DecodeToken(const TokenKind& kind, const TokenSource& from, float* row);

}  // namespace quire::kernels
