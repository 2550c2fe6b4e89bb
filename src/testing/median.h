// The middle of measurements, for benchmarks.
#pragma once

#include <algorithm>
#include <vector>

namespace quire::testing {

// `values` must not be empty; of an even number, the upper of the two in the middle.
inline double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

}  // namespace quire::testing
