// What a piece of the KV cache holds, number by number: the reference that kernels are tested
// against, and how single tokens are decoded (kv_token.h). Slow.
#pragma once

#include <cstddef>

#include "kernels/kv_codec.h"

namespace quire::kernels {

struct PieceView {
  KvCodec codec = KvCodec::kF32;
  const std::byte* piece = nullptr;
  int head_dim = 0;
  int block_size = 0;
};

// The stored number of one token and channel, of a piece of keys or of values. Exact: every codec's
// numbers fit a double.
double DecodedKey(const PieceView& keys, int token, int channel);
double DecodedValue(const PieceView& values, int token, int channel);

}  // namespace quire::kernels
