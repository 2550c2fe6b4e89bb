#include "engine/top_selection.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace quire::engine {
namespace {

constexpr std::ptrdiff_t kSortBelow = 32;

// The row is looked at in chunks, more than one for each element wanted, so that few of them
// matter. Their size is a power of two: whole vectors.
constexpr uint64_t kChunkMin = 16;
constexpr uint64_t kChunkMax = 256;
constexpr uint64_t kChunksPerElement = 2;

}  // namespace

void SelectTopUnordered(const kernels::VectorKernels& kernels, std::span<const float> row,
                        int count, std::vector<Candidate>& out) {
  QUIRE_CHECK_GE(count, 0);
  out.clear();
  if (count == 0) return;
  const auto size = static_cast<int64_t>(row.size());
  const auto chunk = static_cast<int64_t>(
      std::clamp(std::bit_floor(row.size() / (kChunksPerElement * count)), kChunkMin, kChunkMax));
  // First the chunks' maxima, behind them the same again, rearranged: `count` elements reach the
  // count-th greatest maximum, so whatever is less cannot be among the first `count`.
  for (int64_t begin = 0; begin < size; begin += chunk) {
    const int64_t length = std::min(chunk, size - begin);
    out.push_back({kernels.row_max(row.data() + begin, length).value, 0});
  }
  const auto chunks = static_cast<std::ptrdiff_t>(out.size());
  const bool bounded = count <= chunks;
  if (bounded) {
    for (std::ptrdiff_t i = 0; i < chunks; ++i) out.push_back(Candidate(out[i]));
    std::nth_element(out.begin() + chunks, out.begin() + chunks + count - 1, out.end(), Precedes);
  }
  const float bound = bounded ? out[chunks + count - 1].value : 0.0f;
  const auto scratch = static_cast<std::ptrdiff_t>(out.size());
  for (std::ptrdiff_t i = 0; i < chunks; ++i) {
    if (bounded && out[i].value < bound) continue;
    const int64_t begin = i * chunk;
    for (int64_t t = begin; t < std::min(begin + chunk, size); ++t) {
      if (!bounded || row[t] >= bound) out.push_back({row[t], static_cast<TokenId>(t)});
    }
  }
  out.erase(out.begin(), out.begin() + scratch);
  if (out.size() > static_cast<size_t>(count)) {
    std::nth_element(out.begin(), out.begin() + count, out.end(), Precedes);
    out.resize(static_cast<size_t>(count));
  }
}

void SelectTop(const kernels::VectorKernels& kernels, std::span<const float> row, int count,
               std::vector<Candidate>& out) {
  SelectTopUnordered(kernels, row, count, out);
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
