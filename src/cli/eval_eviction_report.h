// What `quire eval perplexity` prints where tokens are given up.
#pragma once

#include <string>
#include <vector>

#include <boost/json/array.hpp>

#include "cli/svg_plot.h"
#include "eval/eviction_perplexity.h"

namespace quire::cli {

std::string EvictionTable(const eval::EvictionPerplexityReport& report);
// How the numbers came about, as a sentence.
std::string EvictionMethod(const eval::EvictionPerplexityReport& report,
                           const eval::EvictionPerplexityOptions& options);
boost::json::array EvictionScoresAsJson(const eval::EvictionPerplexityReport& report);
// Perplexity against the tokens that a sequence keeps.
std::vector<PlotPoint> EvictionPoints(const eval::EvictionPerplexityReport& report);

}  // namespace quire::cli
