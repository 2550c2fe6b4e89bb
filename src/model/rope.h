// Rotary position embedding: which angle each pair of channels turns by per position.
//
// RoPE (2104.09864) with linear scaling, Llama 3's piecewise scaling, YaRN (2309.00071) and
// LongRoPE (2402.13753). Angles are formed in double, so that a position of millions is still
// exact.
#pragma once

#include <span>
#include <vector>

#include "model/model_config.h"

namespace quire::model {

class Rope {
 public:
  // `max_positions`: the longest context that will be used. LongRoPE picks its factors by it, once,
  // so that a sequence's numbers do not change as it grows.
  Rope(const RopeConfig& config, int max_positions);

  int pairs() const { return static_cast<int>(frequencies_.size()); }

  // Writes cos and sin of every pair at `position`, times the magnitude: [pairs] each.
  void Angles(int position, std::span<float> cos, std::span<float> sin) const;

 private:
  std::vector<double> frequencies_;  // [pairs] radians per position
  double magnitude_ = 1.0;           // YaRN's and LongRoPE's attention factor
};

}  // namespace quire::model
