#include "cli/svg_plot.h"

#include <limits>
#include <regex>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/markdown_table.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Drawn {
  double x = 0;
  double y = 0;
};

std::vector<Drawn> Circles(const std::string& svg) {
  std::vector<Drawn> circles;
  const std::regex circle("cx=\"([0-9.-]+)\" cy=\"([0-9.-]+)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), circle), end; at != end; ++at) {
    circles.push_back({std::stod((*at)[1]), std::stod((*at)[2])});
  }
  return circles;
}

const PlotText kText = {.title = "A & B", .x_axis = "x", .y_axis = "y < z"};

TEST(SvgPlot, PlacesPointsInProportionAndNamesThem) {
  const std::vector<PlotPoint> points = {
      {"zero", 0, 0}, {"half", 500, 0.25}, {"k=int8,v=int4", 1000, 0.5}};
  const std::string svg = SvgPlot(kText, points);
  const std::vector<Drawn> circles = Circles(svg);
  ASSERT_EQ(circles.size(), 3u);
  EXPECT_NEAR(circles[1].x, (circles[0].x + circles[2].x) / 2, 0.1);
  EXPECT_NEAR(circles[1].y, (circles[0].y + circles[2].y) / 2, 0.1);
  EXPECT_LT(circles[2].y, circles[0].y) << "greater values are further up";
  EXPECT_THAT(svg, HasSubstr("k=int8,v=int4"));
  EXPECT_THAT(svg, HasSubstr(">1000</text>"));
  EXPECT_THAT(svg, HasSubstr(">0.5</text>"));
}

TEST(SvgPlot, KeepsEverythingInsideTheDrawing) {
  const std::vector<PlotPoint> points = {{"a", 3072, -0.0004}, {"b", 17, 12345}, {"c", 384, 1e-9}};
  for (const Drawn& circle : Circles(SvgPlot(kText, points))) {
    EXPECT_GE(circle.x, 0);
    EXPECT_LE(circle.x, 720);
    EXPECT_GE(circle.y, 0);
    EXPECT_LE(circle.y, 440);
  }
}

TEST(SvgPlot, EscapesNamesAndLeavesOutWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = SvgPlot(kText, std::vector<PlotPoint>{{"<b>", 1, 1}, {"gone", 1, nan}});
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  EXPECT_THAT(svg, HasSubstr("y &lt; z"));
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("gone")));
  EXPECT_THAT(SvgPlot(kText, {}), HasSubstr("</svg>"));
}

TEST(MarkdownTable, AlignsItsColumns) {
  MarkdownTable table({"codec", "rise"});
  table.AddRow({"f32", "0"});
  table.AddRow({"k=int8,v=int4", "12.5 %"});
  EXPECT_EQ(table.Text(),
            "| codec         |   rise |\n"
            "|---------------|-------:|\n"
            "| f32           |      0 |\n"
            "| k=int8,v=int4 | 12.5 % |\n");
}

}  // namespace
}  // namespace quire::cli
