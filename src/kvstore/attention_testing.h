// What tests of attention expect of a harness: the reference's numbers, or another harness's bits.
#pragma once

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "kvstore/attention_reference.h"

namespace quire::kvstore::testing {

// Queries and weights of quantized codecs are integers of 16 bits.
inline constexpr double kQuantizedError = 2e-3;

enum class Codecs { kPlain, kQuantized };

// A row is within kQuantizedError of the reference in relation to its length; with plain codecs
// each number is within the bound of f32 arithmetic.
inline void ExpectNear(const float* out, const ReferenceRow& row, Codecs codecs) {
  const bool quantized = codecs == Codecs::kQuantized;
  double error = 0, length = 0;
  for (size_t c = 0; c < row.out.size(); ++c) {
    if (!quantized) {
      ASSERT_NEAR(out[c], row.out[c], row.tolerance[c]) << "channel " << c;
    }
    error += (out[c] - row.out[c]) * (out[c] - row.out[c]);
    length += row.out[c] * row.out[c];
  }
  if (quantized) {
    ASSERT_LE(std::sqrt(error), kQuantizedError * std::sqrt(length));
  }
}

// Compares every `stride`-th position of a sequence, one q head each in turn.
inline void ExpectMatchesDouble(const AttentionHarness& harness, int sequence, int stride) {
  const AttentionShape& shape = harness.shape();
  for (int layer = 0; layer < harness.layers(); ++layer) {
    const KvCodecs codecs = harness.layout().codecs(layer);
    const Codecs kind = IsQuantized(codecs.keys) || IsQuantized(codecs.values) ? Codecs::kQuantized
                                                                               : Codecs::kPlain;
    for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      const Reference reference(harness, sequence, layer, kv_head);
      for (int p = 0; p < harness.length(sequence); p += stride) {
        const int q_head = p % shape.q_heads;
        if (q_head / shape.group_size() != kv_head) continue;
        SCOPED_TRACE(fmt::format("layer {} position {} q head {}", layer, p, q_head));
        ExpectNear(harness.Output(sequence, layer, p, q_head), reference.Row(p, q_head), kind);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

inline void ExpectSameBits(const AttentionHarness& a, const AttentionHarness& b) {
  ASSERT_EQ(a.sequences(), b.sequences());
  for (int layer = 0; layer < a.layers(); ++layer) {
    for (int s = 0; s < a.sequences(); ++s) {
      ASSERT_EQ(a.length(s), b.length(s));
      size_t bytes = static_cast<size_t>(a.length(s)) * a.q_size() * sizeof(float);
      ASSERT_EQ(std::memcmp(a.Outputs(s, layer).data(), b.Outputs(s, layer).data(), bytes), 0)
          << "sequence " << s << " layer " << layer;
    }
  }
}

}  // namespace quire::kvstore::testing
