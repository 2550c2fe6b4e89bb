// Attention's inner kernels: what happens between a few query rows and one block of keys or values,
// on the encoded data. Called by kvstore/attention.h alone.
//
// A register tile is up to kRowTile rows; a row is one (query, q head) pair of a KV head's group,
// so that the whole group shares each load of K and V. Positions are processed in spans of kSpan,
// aligned at absolute positions; weights and sums below are those of one span.
//
// Order of operations, the same for every row however rows are tiled, and the same bits on every
// instruction set:
//   score   = q.k summed over channels in ascending order, fused multiply-adds, from 0
//   weight  = Exp(score - max of the span's visible scores)
//   sum     = kSoftmaxLanes partial sums, lane = position mod kSoftmaxLanes, then halves added
//   output  = weights times values summed over visible tokens in ascending order, fused, from 0
// A token that a row may not see is never multiplied for it: its memory may hold anything.
// Quantized codecs take their own sums instead (attention_scalar_quantized.cc); memory of tokens
// that a tile does not cover is not looked at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/kv_codec.h"

namespace quire::kernels {

inline constexpr int kSpan = 256;         // positions whose softmax is taken together
inline constexpr int kRowTile = 6;        // rows that a register tile holds at most
inline constexpr int kSoftmaxLanes = 16;  // partial sums of a span's softmax denominator

// Scores of a row tile against tokens [begin, end) of a block.
struct ScoreTile {
  const std::byte* q = nullptr;  // what the codec's prepare made of the queries
  int rows = 0;                  // 1..kRowTile
  int head_dim = 0;
  const std::byte* keys = nullptr;  // [head_dim, block_size] encoded
  int block_size = 0;               // a multiple of 16
  int begin = 0;
  int end = 0;
  float* scores = nullptr;          // [rows, kSpan], at the block's first token; kernels may also
                                    // write the scores of other tokens of this block
  const std::byte* next = nullptr;  // what will be read after this, for prefetching; may be null
};

// Adds weights * values of tokens [begin, end) of a block to a row tile's outputs. For codecs with
// WeighsBlocks, `weights` of tokens in between that a row may not see must be 0, and a row must get
// all its tokens of a block in one call.
struct ValueTile {
  const float* weights = nullptr;  // [rows, kSpan], at the block's first token
  int rows = 0;                    // 1..kRowTile
  int head_dim = 0;
  const std::byte* values = nullptr;  // [block_size, head_dim] encoded
  int block_size = 0;
  int begin = 0;
  int end = 0;
  float* out = nullptr;             // [rows, head_dim]
  const std::byte* next = nullptr;  // as in ScoreTile
};

// Stores `count` rows of one KV head as tokens first.. of a block. Values beyond a codec's range
// become its largest, so that one token's overflow cannot spread to others as inf - inf.
struct EncodeTile {
  const float* rows = nullptr;  // [count, head_dim]
  int64_t row_stride = 0;
  int count = 0;
  int head_dim = 0;
  std::byte* piece = nullptr;  // keys [head_dim, block_size] or values [block_size, head_dim]
  int block_size = 0;
  int first = 0;
};

// Encodes a whole block from its f16 piece. Tokens before `skip` are kept elsewhere: they are
// stored as zeros and count in no scale.
struct SealTile {
  const std::byte* from = nullptr;  // keys [head_dim, block_size] or values [block_size, head_dim]
  int head_dim = 0;
  int block_size = 0;
  int skip = 0;
  std::byte* piece = nullptr;
};

// Turns a row tile's queries into what a codec's score kernel wants.
struct QueryTile {
  const float* q = nullptr;  // [rows, head_dim], already scaled
  int rows = 0;              // 1..kRowTile
  int head_dim = 0;
  std::byte* prepared = nullptr;  // rows * PreparedQueryBytes(head_dim), aligned to 4
};

struct SpanSums {
  float max = 0.0f;  // of the visible scores
  float sum = 0.0f;  // of the weights
};

struct KvCodecKernels {
  void (*prepare)(const QueryTile&);
  void (*scores)(const ScoreTile&);
  void (*add_values)(const ValueTile&);
  void (*encode_keys)(const EncodeTile&);    // null for sealed codecs
  void (*encode_values)(const EncodeTile&);  // likewise
  void (*seal_keys)(const SealTile&);        // null for codecs that are not IsQuantized
  void (*seal_values)(const SealTile&);      // likewise
};

// Weights become integers per block of values (kv_pieces.h), so a row must get a block's tokens in
// one call, and multiplying what it does not see by 0 is harmless.
constexpr bool WeighsBlocks(KvCodec value_codec) {
  return IsQuantized(value_codec) && value_codec >= KvCodec::kInt8;
}

struct AttentionKernels {
  KvCodecKernels codecs[kKvCodecCount];

  // Turns a row's scores[begin, end) into weights in place; begin < end <= kSpan. `scores` is the
  // whole span's row [kSpan]. softcap 0: none, else s = softcap * tanh(s / softcap) first.
  SpanSums (*softmax)(float* scores, int begin, int end, float softcap);

  // total = total * total_factor + part * part_factor, each [n]; the second product is fused.
  void (*merge)(float* total, const float* part, int n, float total_factor, float part_factor);

  // Multiplies a row in place by the normalised Hadamard matrix, which is its own inverse, of each
  // power of two in head_dim's binary form: 80 channels are 64 and 16.
  void (*rotate)(float* row, int head_dim);

  const KvCodecKernels& codec(KvCodec kind) const { return codecs[static_cast<int>(kind)]; }
};

}  // namespace quire::kernels
