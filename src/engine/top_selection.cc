#include "engine/top_selection.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::engine {
namespace {

constexpr int64_t kChunk = 256;
constexpr std::ptrdiff_t kSortBelow = 32;

// A value that at least `count` elements of the row reach: the count-th greatest maximum of chunks.
float LowerBoundOfTop(const kernels::VectorKernels& kernels, std::span<const float> row, int count,
                      std::vector<Candidate>& scratch) {
  const auto size = static_cast<int64_t>(row.size());
  scratch.clear();
  for (int64_t begin = 0; begin < size; begin += kChunk) {
    int64_t length = std::min(kChunk, size - begin);
    scratch.push_back({kernels.row_max(row.data() + begin, length).value, 0});
  }
  std::nth_element(scratch.begin(), scratch.begin() + (count - 1), scratch.end(), Precedes);
  return scratch[static_cast<size_t>(count - 1)].value;
}

}  // namespace

void SelectTop(const kernels::VectorKernels& kernels, std::span<const float> row, int count,
               std::vector<Candidate>& out) {
  QUIRE_CHECK_GE(count, 0);
  out.clear();
  if (count == 0) return;
  bool bounded = static_cast<int64_t>(count) * kChunk <= static_cast<int64_t>(row.size());
  float bound = bounded ? LowerBoundOfTop(kernels, row, count, out) : row[0];
  out.clear();
  for (size_t i = 0; i < row.size(); ++i) {
    if (!bounded || row[i] >= bound) out.push_back({row[i], static_cast<TokenId>(i)});
  }
  if (out.size() > static_cast<size_t>(count)) {
    std::nth_element(out.begin(), out.begin() + count, out.end(), Precedes);
    out.resize(static_cast<size_t>(count));
  }
  std::sort(out.begin(), out.end(), Precedes);
}

Candidate LastOfTopMass(std::span<Candidate> weights, double mass) {
  QUIRE_CHECK(!weights.empty());
  auto begin = weights.begin();
  auto end = weights.end();
  double before = 0.0;  // the sum of what was found to lie within the mass
  // Quickselect by mass: [weights.begin(), begin) is within, [end, weights.end()) is beyond.
  while (end - begin > kSortBelow) {
    auto middle = begin + (end - begin) / 2;
    auto last = end - 1;
    // The median of three becomes the last element, the pivot.
    if (Precedes(*middle, *begin)) std::swap(*middle, *begin);
    if (Precedes(*last, *begin)) std::swap(*last, *begin);
    if (Precedes(*middle, *last)) std::swap(*middle, *last);
    Candidate pivot = *last;
    auto split =
        std::partition(begin, last, [&](const Candidate& c) { return Precedes(c, pivot); });
    std::swap(*split, *last);
    double upper = before;
    for (auto it = begin; it != split; ++it) upper += it->value;
    if (upper >= mass && split != begin) {
      end = split;
      continue;
    }
    before = upper + pivot.value;
    if (before >= mass) return pivot;
    begin = split + 1;
  }
  std::sort(begin, end, Precedes);
  for (auto it = begin; it != end; ++it) {
    before += it->value;
    if (before >= mass) return *it;
  }
  // Rounding may leave the sum short of a mass that is nearly everything.
  return *std::min_element(weights.begin(), weights.end(),
                           [](const auto& a, const auto& b) { return Precedes(b, a); });
}

}  // namespace quire::engine
