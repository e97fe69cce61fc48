// Several curves in one plot, on linear or logarithmic axes, with a legend below.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "samples/report/charts.h"

namespace sotto {

struct Curve {
  std::string name{};
  std::vector<double> x{};  // increasing
  std::vector<double> y{};  // not finite: no point at that x
  int colour = 0;           // class line-0 and so on
  int dash = 0;             // 0: a solid line; else class dash-1, dash-2 of the style sheet
};

struct CurveChart {
  std::string name{};  // the quantity drawn, and over what
  std::string x_name{};
  std::string y_name{};
  std::vector<Curve> curves{};
  bool log_x = false;            // requires x > 0
  bool log_y = false;            // omits y <= 0
  std::optional<double> mark{};  // an x marked by a dashed line
  Label label = number;          // formats a y in a hover title
};

// Returns the plot, a hover title for each point, and a legend if there are several curves; a
// sentence when no value is finite. Colours beyond the style sheet's repeat. Throws
// std::invalid_argument when a curve does not have as many x as y.
std::string curve_chart(const CurveChart& chart);

// The style rules that curves need besides those of the report's style sheet.
inline constexpr const char* curve_style = R"css(
.dash-1 { stroke-dasharray: 9 4; }
.dash-2 { stroke-dasharray: 2 4; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 22px; margin: 4px 0 0; padding: 0; list-style: none; font-size: 13px; }
.legend svg { display: inline-block; width: 28px; height: 8px; margin-right: 8px; }
)css";

}  // namespace sotto
