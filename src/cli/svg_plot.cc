#include "cli/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace quire::cli {
namespace {

// Of the drawing, in pixels.
constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 90, kRight = 120, kTop = 50, kBottom = 60;

// Marks on an axis: multiples of `step` from `low` to `high`, which take in all values.
struct Axis {
  double low = 0;
  double high = 1;
  double step = 0.25;

  double Share(double value) const { return (value - low) / (high - low); }
  int marks() const { return static_cast<int>(std::lround((high - low) / step)); }
};

// Steps of 1, 2 or 5 times a power of ten, four to ten of them.
Axis AxisFor(double least, double greatest) {
  least = std::min(least, 0.0);
  greatest = std::max(greatest, 0.0);
  if (greatest - least <= 0) return {};
  const double rough = (greatest - least) / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  return {std::floor(least / step) * step, std::ceil(greatest / step) * step, step};
}

double PixelX(const Axis& axis, double value) {
  return kLeft + axis.Share(value) * (kWidth - kLeft - kRight);
}
double PixelY(const Axis& axis, double value) {
  return kHeight - kBottom - axis.Share(value) * (kHeight - kTop - kBottom);
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Grid(const Axis& x, const Axis& y) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  for (int i = 0; i <= x.marks(); ++i) {
    const double value = x.low + i * x.step;
    const double at = PixelX(x, value);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n", at,
        kTop, bottom);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", at,
                       bottom + 18, value);
  }
  for (int i = 0; i <= y.marks(); ++i) {
    // Without the rounding, 3 steps of 0.1 are 0.30000000000000004.
    const double value = std::round((y.low + i * y.step) / y.step) * y.step;
    const double at = PixelY(y, value);
    svg += fmt::format(
        "<line x1=\"{1:.1f}\" y1=\"{0:.1f}\" x2=\"{2:.1f}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>\n", at,
        kLeft, kWidth - kRight);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
                       kLeft - 8, at + 4, value);
  }
  return svg;
}

std::string Titles(const PlotText& text) {
  const double middle_x = kLeft + (kWidth - kLeft - kRight) / 2;
  const double middle_y = kTop + (kHeight - kTop - kBottom) / 2;
  return fmt::format(
      "<text x=\"{0:.1f}\" y=\"28\" text-anchor=\"middle\" font-size=\"16\">{1}</text>\n"
      "<text x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"middle\">{3}</text>\n"
      "<text transform=\"translate(22,{4:.1f}) rotate(-90)\" text-anchor=\"middle\">{5}</text>\n",
      middle_x, Escaped(text.title), kHeight - 16, Escaped(text.x_axis), middle_y,
      Escaped(text.y_axis));
}

}  // namespace

std::string SvgPlot(const PlotText& text, std::span<const PlotPoint> points) {
  std::vector<PlotPoint> shown;
  std::ranges::copy_if(points, std::back_inserter(shown), [](const PlotPoint& point) {
    return std::isfinite(point.x) && std::isfinite(point.y);
  });
  Axis x, y;
  if (!shown.empty()) {
    const auto [left, right] = std::ranges::minmax(shown, {}, &PlotPoint::x);
    const auto [low, high] = std::ranges::minmax(shown, {}, &PlotPoint::y);
    x = AxisFor(left.x, right.x);
    y = AxisFor(low.y, high.y);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  svg += Titles(text) + Grid(x, y);
  for (const PlotPoint& point : shown) {
    const double at_x = PixelX(x, point.x);
    const double at_y = PixelY(y, point.y);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#1f5fa8\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        at_x, at_y, at_x + 7, at_y - 5, Escaped(point.name));
  }
  return svg + "</svg>\n";
}

}  // namespace quire::cli
