// Several curves in one plot, on linear or logarithmic axes, with a legend below.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "samples/report/charts.h"

namespace sotto {

struct Curve {
  std::string name{};
  std::vector<double> x{};  // rising
  std::vector<double> y{};  // not finite: nothing to draw at that x
  int colour = 0;           // line-0 and so on
  int dash = 0;             // 0 a solid line, then dash-1, dash-2 of the style sheet
};

struct CurveChart {
  std::string name{};  // what is drawn over what
  std::string x_name{};
  std::vector<Curve> curves{};
  bool log_x = false;            // needs x > 0
  bool log_y = false;            // leaves out y <= 0
  std::optional<double> mark{};  // an x that a dashed line shows
  Label label = number;          // how a y is written in a hover title
};

// The plot, a hover title for each point, and the legend where there is more than one curve. A
// sentence when no value is finite. Colours beyond the style sheet's come round again. Throws
// std::invalid_argument when a curve has not as many x as y.
std::string curve_chart(const CurveChart& chart);

// The rules that curves need beyond those of the report's style sheet.
inline constexpr const char* curve_style = R"css(
.dash-1 { stroke-dasharray: 9 4; }
.dash-2 { stroke-dasharray: 2 4; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 22px; margin: 4px 0 0; padding: 0; list-style: none; font-size: 13px; }
.legend svg { display: inline-block; width: 28px; height: 8px; margin-right: 8px; }
)css";

}  // namespace sotto
