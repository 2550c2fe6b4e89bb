// Attention of made-up sequences (attention_harness.h) in double precision on the numbers that the
// cache stores, for tests. What is stored is computed here anew, from the scalar encoders.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/kv_codec_reference.h"
#include "kvstore/attention_harness.h"

namespace quire::kvstore::testing {

// One KV head's keys or values of one sequence and layer as a query sees them.
class StoredPlane {
 public:
  using KvCodec = kernels::KvCodec;
  enum class Kind { kKeys, kValues };

  StoredPlane(const AttentionHarness& harness, int sequence, int layer, int kv_head, Kind kind)
      : layout_(harness.layout()),
        kind_(kind),
        codec_(kind == Kind::kKeys ? layout_.codecs(layer).keys : layout_.codecs(layer).values),
        rotates_(kind == Kind::kKeys ? layout_.format().rotates_keys(layer)
                                     : layout_.format().rotates_values(layer)),
        d_(layout_.head_dim()),
        rows_(static_cast<size_t>(harness.length(sequence)) * d_) {
    const Stream stream = kind == Kind::kKeys ? Stream::kKey : Stream::kValue;
    for (int p = 0; p < harness.length(sequence); ++p) {
      float* row = rows_.data() + static_cast<size_t>(p) * d_;
      for (int c = 0; c < d_; ++c) {
        row[c] = harness.Value(stream, sequence, layer, p, kv_head * d_ + c);
      }
      if (rotates_) scalar().rotate(row, d_);
    }
    full_ = Decode(KvCodec::kF16);
    stored_ = Decode(codec_);
  }

  // In the domain in which it is stored: rotated, if the codec rotates.
  double At(int query_position, int position, int channel) const {
    const size_t at = static_cast<size_t>(position) * d_ + channel;
    const bool sink = KeepsSinks(codec_) && position < layout_.sink_tokens();
    const int residual = layout_.residual_tokens();
    const bool own = residual > 0 && position / residual == query_position / residual;
    return sink || own ? full_[at] : stored_[at];
  }
  KvCodec codec() const { return codec_; }
  bool rotates() const { return rotates_; }

 private:
  static const kernels::AttentionKernels& scalar() {
    return *kernels::AttentionKernelsFor(kernels::Isa::kScalar);
  }

  std::vector<double> Decode(KvCodec codec) const {
    const int n = layout_.block_size();
    const int positions = static_cast<int>(rows_.size()) / d_;
    std::vector<double> out(rows_.size());
    for (int begin = 0; begin < positions; begin += n) {
      const int count = std::min(n, positions - begin);
      const std::vector<std::byte> piece = Encode(codec, begin, count);
      const kernels::PieceView view{codec, piece.data(), d_, n};
      for (int i = 0; i < count * d_; ++i) {
        out[static_cast<size_t>(begin) * d_ + i] =
            kind_ == Kind::kKeys ? kernels::DecodedKey(view, i / d_, i % d_)
                                 : kernels::DecodedValue(view, i / d_, i % d_);
      }
    }
    return out;
  }

  std::vector<std::byte> Encode(KvCodec codec, int begin, int count) const {
    const bool seal = layout_.has_tail() && kernels::IsQuantized(codec);
    const KvCodec rows_as = seal ? KvCodec::kF16 : codec;
    const bool keys = kind_ == Kind::kKeys;
    const int n = layout_.block_size();
    auto bytes = [&](KvCodec of) {
      return std::max(kernels::KeyPieceBytes(of, d_, n), kernels::ValuePieceBytes(of, d_, n));
    };
    std::vector<std::byte> piece(bytes(rows_as));
    const auto& writer = scalar().codec(rows_as);
    (keys ? writer.encode_keys
          : writer.encode_values)({.rows = rows_.data() + static_cast<size_t>(begin) * d_,
                                   .row_stride = d_,
                                   .count = count,
                                   .head_dim = d_,
                                   .piece = piece.data(),
                                   .block_size = n,
                                   .first = 0});
    if (!seal) return piece;
    std::vector<std::byte> sealed(bytes(codec));
    const auto& sealer = scalar().codec(codec);
    const int skip = begin == 0 && KeepsSinks(codec) ? layout_.sink_tokens() : 0;
    (keys ? sealer.seal_keys : sealer.seal_values)({piece.data(), d_, n, skip, sealed.data()});
    return sealed;
  }

  const KvLayout& layout_;
  Kind kind_;
  KvCodec codec_;
  bool rotates_;
  int d_;
  std::vector<float> rows_;     // [positions, head_dim]
  std::vector<double> full_;    // as f16
  std::vector<double> stored_;  // as the codec stores it
};

// x times the normalised Hadamard matrix of each power of two in its size.
inline std::vector<double> Rotated(const std::vector<double>& x) {
  std::vector<double> out(x.size(), 0.0);
  for (size_t first = 0; first < x.size();) {
    const size_t size = std::bit_floor(x.size() - first);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        const double sign = std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0;
        out[first + i] += sign * x[first + j] / std::sqrt(static_cast<double>(size));
      }
    }
    first += size;
  }
  return out;
}

// One row, and how far f32 arithmetic on plain codecs may stray from it.
struct ReferenceRow {
  std::vector<double> out;        // [head_dim]
  std::vector<double> tolerance;  // [head_dim]
};

// What a row weighs the tokens with that it sees, and how far f32 arithmetic on plain codecs may
// stray from that, relatively.
struct ReferenceWeights {
  std::vector<int> slots;
  std::vector<double> weights;  // [slots]
  double tolerance = 0;
};

// With eps = 2^-24: a score is off by at most (head_dim + 3) eps sum|q k| scale (plus 4 eps cap), a
// weight relative to the others by twice that and a few eps of exp, a sum of n products by n eps.
class Reference {
 public:
  Reference(const AttentionHarness& harness, int sequence, int layer, int kv_head)
      : harness_(harness),
        sequence_(sequence),
        layer_(layer),
        keys_(harness, sequence, layer, kv_head, StoredPlane::Kind::kKeys),
        values_(harness, sequence, layer, kv_head, StoredPlane::Kind::kValues) {}

  ReferenceWeights Weights(int position, int q_head) const {
    const AttentionShape& shape = harness_.shape();
    const int d = shape.head_dim;
    const SeenSlots seen = SlotsSeen(position, harness_.SightIn(sequence_, layer_));
    ReferenceWeights row;
    for (int p = 0; p < seen.recent.end; ++p) {
      if (p < seen.sinks || p >= seen.recent.begin) row.slots.push_back(p);
    }
    const std::vector<double> own = Query(Stream::kQuery, position, q_head);
    const std::vector<double> for_sinks = Query(Stream::kSinkQuery, position, q_head);
    double score_error = 0;
    double max = -INFINITY;
    for (int p : row.slots) {
      const std::vector<double>& q = p < seen.sinks ? for_sinks : own;
      double score = 0, magnitude = 0;
      for (int c = 0; c < d; ++c) {
        const double product = q[c] * keys_.At(position, p, c) * shape.scale();
        score += product;
        magnitude += std::fabs(product);
      }
      score_error = std::max(score_error, (d + 3) * kEps * magnitude);
      if (shape.softcap != 0) score = shape.softcap * std::tanh(score / shape.softcap);
      row.weights.push_back(score);
      max = std::max(max, score);
    }
    if (shape.softcap != 0) score_error += 4 * kEps * shape.softcap;
    double sum = 0;
    for (double& weight : row.weights) sum += weight = std::exp(weight - max);
    for (double& weight : row.weights) weight /= sum;
    row.tolerance = 2 * score_error + (2.0 * static_cast<double>(row.weights.size()) + 16) * kEps;
    return row;
  }

  ReferenceRow Row(int position, int q_head) const {
    const int d = harness_.shape().head_dim;
    const ReferenceWeights weights = Weights(position, q_head);
    ReferenceRow row{std::vector<double>(d, 0.0), std::vector<double>(d, 0.0)};
    for (size_t i = 0; i < weights.slots.size(); ++i) {
      const double weight = weights.weights[i];
      for (int c = 0; c < d; ++c) {
        const double v = values_.At(position, weights.slots[i], c);
        row.out[c] += weight * v;
        row.tolerance[c] += weight * std::fabs(v);
      }
    }
    if (values_.rotates()) row.out = Rotated(row.out);
    for (double& tolerance : row.tolerance) tolerance = tolerance * weights.tolerance + 1e-30;
    return row;
  }

 private:
  static constexpr double kEps = 0x1p-24;

  // In the domain of the stored keys.
  std::vector<double> Query(Stream stream, int position, int q_head) const {
    const int d = harness_.shape().head_dim;
    std::vector<double> q(d);
    for (int c = 0; c < d; ++c) {
      q[c] = harness_.Value(stream, sequence_, layer_, position, q_head * d + c);
    }
    return keys_.rotates() ? Rotated(q) : q;
  }

  const AttentionHarness& harness_;
  int sequence_;
  int layer_;
  StoredPlane keys_;
  StoredPlane values_;
};

}  // namespace quire::kvstore::testing
