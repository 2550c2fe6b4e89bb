// Random cases of attention for fuzz tests: formats, shapes, and how sequences are cut into steps.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "base/rng.h"
#include "kvstore/attention_harness.h"
#include "testing/sanitized.h"

namespace quire::kvstore::testing {

inline std::vector<kernels::Isa> TestedIsas() {
  std::vector<kernels::Isa> isas;
  for (const kernels::KernelTable& table : kernels::AvailableKernels()) isas.push_back(table.isa);
  return isas;
}

inline kernels::KernelTable FastTable() {
  return TableFor(TestedIsas().back());
}

// Plain loops and sanitizers are slow: fewer rounds of the same.
inline int FuzzRounds() {
  constexpr int kRounds = quire::testing::kSanitized ? 6 : 40;
  return TestedIsas().size() == 1 ? 2 : kRounds;
}

// The fuzz tests' random choices.
class Dice {
 public:
  explicit Dice(uint64_t seed) : rng_(seed, 0, 0) {}
  int Between(int low, int high) {
    return low + static_cast<int>(rng_.NextBelow(static_cast<uint64_t>(high - low + 1)));
  }
  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return choices.begin()[rng_.NextBelow(choices.size())];
  }

 private:
  base::CounterRng rng_;
};

inline KvFormat RandomFormat(Dice& dice, int layers) {
  auto codec = [&] { return kernels::kAllKvCodecs[dice.Between(0, kernels::kKvCodecCount - 1)]; };
  for (;;) {
    KvFormat format{codec(), codec(), dice.OneOf({16, 32, 64})};
    if (dice.Between(0, 2) == 0) format.layers = {{0, {codec(), codec()}}};
    if (dice.Between(0, 1) == 0) format.residual_tokens = dice.OneOf({16, 32, 100});
    if (dice.Between(0, 1) == 0) format.sink_tokens = dice.OneOf({0, 1, 16});
    if (ValidateFormat(format, layers).ok()) return format;
  }
}

inline bool HasQuantized(const KvLayout& layout) {
  for (int layer = 0; layer < layout.layers(); ++layer) {
    const KvCodecs codecs = layout.codecs(layer);
    if (IsQuantized(codecs.keys) || IsQuantized(codecs.values)) return true;
  }
  return false;
}

inline AttentionShape RandomShape(Dice& dice) {
  AttentionShape shape;
  shape.kv_heads = dice.Between(1, 3);
  shape.q_heads = shape.kv_heads * dice.Between(1, 8);
  shape.head_dim = dice.OneOf({8, 16, 20, 32, 64, 80});
  shape.windows = {dice.OneOf({0, 0, 1, 20, 70, 256, 300})};
  if (dice.Between(0, 1) == 1) shape.windows.push_back(0);
  shape.format = RandomFormat(dice, static_cast<int>(shape.windows.size()));
  if (dice.Between(0, 3) == 0) shape.softcap = 20.0f;
  return shape;
}

// The sequences whose scores are asked for: none, or 0, 2, 4...
enum class Scored { kNone, kEven };

// Steps that mix chunks of all sequences until each has its length. How many units were split.
inline int RunMixed(AttentionHarness& harness, const std::vector<int>& lengths,
                    const kernels::KernelTable& kernels, Dice& dice,
                    Scored scored = Scored::kNone) {
  for (int splits = 0;;) {
    std::vector<AttentionHarness::Piece> pieces;
    for (int i = 0; i < harness.sequences(); ++i) {
      int left = lengths[i] - harness.length(i);
      if (left == 0 || dice.Between(0, 4) == 0) continue;
      pieces.push_back({i, std::min(left, dice.OneOf({1, 1, 7, 64, 131}))});
      if (scored == Scored::kEven && i % 2 == 0) pieces.back().first_scored = 0;
    }
    if (!pieces.empty()) harness.Step(kernels, pieces);
    splits += static_cast<int>(harness.plan().units(0).splits.size());
    bool done = true;
    for (int i = 0; i < harness.sequences(); ++i) done = done && harness.length(i) == lengths[i];
    if (done) return splits;
  }
}

}  // namespace quire::kvstore::testing
