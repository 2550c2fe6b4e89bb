// Encoding of keys and values to 8, 4 and 2 bits. One implementation serves every instruction set:
// a number is encoded once and read many times.
//
// A number that f16 cannot tell from infinity (|x| >= 65504, or NaN) belongs to a token that is
// lost already. It counts in no scale, so that those who share the scale are not lost with it, and
// is stored as what its scale has nearest to +-65504, NaN as what is nearest to 0.
#pragma once

#include "kernels/attention_kernels.h"

namespace quire::kernels {

struct KvEncoders {
  void (*encode_keys)(const EncodeTile&) = nullptr;  // null for sealed codecs
  void (*encode_values)(const EncodeTile&) = nullptr;
  void (*seal_keys)(const SealTile&) = nullptr;
  void (*seal_values)(const SealTile&) = nullptr;
};

// Of a codec that IsQuantized.
KvEncoders QuantizedEncoders(KvCodec codec);

}  // namespace quire::kernels
