// Amounts that add up, over time: stacked bands, each with a hover title.
#pragma once

#include <string>
#include <vector>

#include "samples/report/charts.h"

namespace sotto {

struct Band {
  std::string title{};
  std::vector<double> y{};  // >= 0, one for each x
  int colour = 0;           // class back-0 and so on; from chart_colours on: grey
};

struct BandChart {
  std::string name{};  // the quantity drawn
  std::string x_name{};
  std::vector<double> x{};    // increasing
  std::vector<Band> bands{};  // from the bottom up
  Label label = number;       // formats a y
};

// Returns the plot, or a sentence when there is nothing to draw. Throws std::invalid_argument when
// a band does not have as many values as x.
std::string band_chart(const BandChart& chart);

// The style rules that bands need besides those of the report's style sheet.
inline constexpr const char* band_style = R"css(
.fill-rest { fill: var(--soft); }
.back-rest { background: var(--soft); }
.band { fill-opacity: 0.85; stroke: var(--line); stroke-width: 0.3; }
.band:hover { fill-opacity: 1; stroke: var(--ink); stroke-width: 1; }
)css";

// The class of a colour: "fill-3", "back-rest".
std::string colour_class(const char* what, int colour);

}  // namespace sotto
