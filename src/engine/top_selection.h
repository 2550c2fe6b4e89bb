// Partial selection over a row of the vocabulary: what is needed of a sort, in linear time.
//
// Candidates are ordered by value, greatest first; equal values by token id, lowest first. No two
// are equal, so every selection here is unique.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/vector_kernels.h"

namespace quire::engine {

struct Candidate {
  float value = 0.0f;
  TokenId token = 0;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

inline bool Precedes(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// out = the first `count` of `row`, in any order; all of the row if it has no more. The row has no
// NaN.
void SelectTopUnordered(const kernels::VectorKernels& kernels, std::span<const float> row,
                        int count, std::vector<Candidate>& out);

// The same in their order.
void SelectTop(const kernels::VectorKernels& kernels, std::span<const float> row, int count,
               std::vector<Candidate>& out);

// The last member of the shortest leading run (in order) whose values sum to at least `mass`; the
// last of all where the whole does not. Values are weights >= 0, not empty. Rearranges them.
Candidate LastOfTopMass(std::span<Candidate> weights, double mass);

}  // namespace quire::engine
