// Small charts as inline SVG, for pages that load nothing from elsewhere. Colours are classes that
// the page's style sheet defines (line-0 to line-7, fill-0 to fill-7), so that light and dark are
// the page's business.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

// Text for HTML content and quoted attributes: & < > " ' become entities, control characters that
// markup may not hold, and bytes that are no UTF-8, become U+FFFD.
std::string escape(std::string_view text);

// "1,234,567"
std::string grouped(std::int64_t value);

// A number with four significant digits, very large and small ones as 2.5 · 10⁻⁷; a dash for NaN.
std::string number(double value);

// A decimal as numbers are written above: "1.01e-05" as 1.01 · 10⁻⁵.
std::string typeset(const std::string& decimal);

// "98.13 %"; a dash for NaN.
std::string percent(double fraction);

// "12.5 MiB"
std::string memory_size(std::uint64_t bytes);

using Label = std::function<std::string(double)>;

struct LineChart {
  std::string name{};       // of what is drawn, for hover titles: "accuracy"
  std::vector<double> x{};  // rising
  std::vector<double> y{};  // NaN: nothing measured at that x
  double first_x = 0;       // the axis, shared by charts that stand above one another
  double last_x = 1;
  std::string x_name{};  // written below the axis; none: the axis has no labels
  Label label = number;  // how a value is written
  int colour = 0;
};

// The line, a grid, the last value beside its dot, and a hover title for each point. A sentence
// when no value is finite.
std::string line_chart(const LineChart& chart);

struct HistogramChart {
  std::vector<double> edges{};  // counts.size() + 1, rising
  std::vector<std::int64_t> counts{};
  // Marked, with the bars beyond it in another colour; NaN: there is none.
  double bound = std::numeric_limits<double>::quiet_NaN();
  std::string bound_name{};
  std::string x_name{};
};

// Bars with hover titles and the bound as a dashed line; a sentence when there are no counts.
// Throws std::invalid_argument unless edges rise, are finite and one more than the counts.
std::string histogram_chart(const HistogramChart& chart);

struct Share {
  std::string name;
  double value;  // >= 0
  std::string text;
};

// One horizontal bar divided in proportion, coloured fill-0, fill-1, ... in turn; a sentence when
// the shares sum to nothing.
std::string stacked_bar(const std::vector<Share>& shares);

// How many colours the style sheet has to define.
inline constexpr int chart_colours = 8;

}  // namespace sotto
