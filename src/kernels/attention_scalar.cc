// Attention's kernels in plain loops: the definition that the others must equal bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention_kernels.h"
#include "kernels/attention_math.h"
#include "kernels/attention_tables.h"
#include "kernels/half.h"

namespace quire::kernels {
namespace {

struct F32Codec {
  using Stored = float;
  static float Decode(float x) { return x; }
  static float Encode(float x) {
    constexpr float kMax = std::numeric_limits<float>::max();
    return x > kMax ? kMax : x < -kMax ? -kMax : x;
  }
};

struct F16Codec {
  using Stored = uint16_t;
  static float Decode(uint16_t x) { return F32FromF16(x); }
  static uint16_t Encode(float x) {
    constexpr float kMax = 65504.0f;
    return F16FromF32(x > kMax ? kMax : x < -kMax ? -kMax : x);
  }
};

struct Bf16Codec {
  using Stored = uint16_t;
  static float Decode(uint16_t x) { return F32FromBf16(x); }
  static uint16_t Encode(float x) {
    constexpr float kMax = 0x1.fep127f;
    return Bf16FromF32(x > kMax ? kMax : x < -kMax ? -kMax : x);
  }
};

// [rows, head_dim] to [head_dim, rows].
void Prepare(const QueryTile& tile) {
  auto* packed = reinterpret_cast<float*>(tile.prepared);
  for (int r = 0; r < tile.rows; ++r) {
    for (int c = 0; c < tile.head_dim; ++c) {
      packed[c * tile.rows + r] = tile.q[r * tile.head_dim + c];
    }
  }
}

template <typename Codec>
void Scores(const ScoreTile& tile) {
  const auto* q = reinterpret_cast<const float*>(tile.q);
  const auto* keys = reinterpret_cast<const typename Codec::Stored*>(tile.keys);
  for (int r = 0; r < tile.rows; ++r) {
    for (int t = tile.begin; t < tile.end; ++t) {
      float score = 0.0f;
      for (int c = 0; c < tile.head_dim; ++c) {
        score = std::fma(q[c * tile.rows + r], Codec::Decode(keys[c * tile.block_size + t]), score);
      }
      tile.scores[r * kSpan + t] = score;
    }
  }
}

template <typename Codec>
void AddValues(const ValueTile& tile) {
  const auto* values = reinterpret_cast<const typename Codec::Stored*>(tile.values);
  for (int t = tile.begin; t < tile.end; ++t) {
    for (int r = 0; r < tile.rows; ++r) {
      float weight = tile.weights[r * kSpan + t];
      float* out = tile.out + r * tile.head_dim;
      for (int c = 0; c < tile.head_dim; ++c) {
        out[c] = std::fma(weight, Codec::Decode(values[t * tile.head_dim + c]), out[c]);
      }
    }
  }
}

template <typename Codec>
void EncodeKeys(const EncodeTile& tile) {
  auto* keys = reinterpret_cast<typename Codec::Stored*>(tile.piece);
  for (int i = 0; i < tile.count; ++i) {
    const float* row = tile.rows + i * tile.row_stride;
    for (int c = 0; c < tile.head_dim; ++c) {
      keys[c * tile.block_size + tile.first + i] = Codec::Encode(row[c]);
    }
  }
}

template <typename Codec>
void EncodeValues(const EncodeTile& tile) {
  auto* values = reinterpret_cast<typename Codec::Stored*>(tile.piece);
  for (int i = 0; i < tile.count; ++i) {
    const float* row = tile.rows + i * tile.row_stride;
    auto* out = values + (tile.first + i) * tile.head_dim;
    for (int c = 0; c < tile.head_dim; ++c) out[c] = Codec::Encode(row[c]);
  }
}

SpanSums Softmax(float* scores, int begin, int end, float softcap) {
  if (softcap != 0.0f) {
    for (int t = begin; t < end; ++t) scores[t] = Softcap(scores[t], softcap);
  }
  float max = *std::max_element(scores + begin, scores + end);
  float lanes[kSoftmaxLanes] = {};
  for (int t = begin; t < end; ++t) {
    scores[t] = ExpNonPositive(scores[t] - max);
    lanes[t % kSoftmaxLanes] += scores[t];
  }
  for (int half = kSoftmaxLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return {max, lanes[0]};
}

void Merge(float* total, const float* part, int n, float total_factor, float part_factor) {
  for (int i = 0; i < n; ++i) {
    total[i] = std::fma(part[i], part_factor, total[i] * total_factor);
  }
}

void Rotate(float* row, int head_dim) {
  RotateRow(row, head_dim);
}

template <typename Codec>
constexpr KvCodecKernels kCodecKernels = {
    Prepare, Scores<Codec>, AddValues<Codec>, EncodeKeys<Codec>, EncodeValues<Codec>,
    nullptr, nullptr};

}  // namespace

const AttentionKernels& AttentionScalar() {
  static const AttentionKernels kernels = {
      {kCodecKernels<F32Codec>, kCodecKernels<F16Codec>, kCodecKernels<Bf16Codec>,
       ScalarQuantizedKernels(KvCodec::kFp8E4M3), ScalarQuantizedKernels(KvCodec::kFp8E5M2),
       ScalarQuantizedKernels(KvCodec::kInt8), ScalarQuantizedKernels(KvCodec::kInt4),
       ScalarQuantizedKernels(KvCodec::kKivi4), ScalarQuantizedKernels(KvCodec::kKivi2)},
      Softmax,
      Merge,
      Rotate};
  return kernels;
}

}  // namespace quire::kernels
