// A scatter plot of named points as an SVG document: quality against memory.
#pragma once

#include <span>
#include <string>

namespace quire::cli {

struct PlotPoint {
  std::string name;
  double x = 0;
  double y = 0;
};

struct PlotText {
  std::string title;
  std::string x_axis;
  std::string y_axis;
};

// Axes are linear, begin at 0 (or below, for negative values) and end at a round number. Points
// that are not finite are left out.
std::string SvgPlot(const PlotText& text, std::span<const PlotPoint> points);

}  // namespace quire::cli
