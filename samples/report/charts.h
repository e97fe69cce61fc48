// Small charts as inline SVG, for pages that load nothing from elsewhere. Colours are classes of
// the page's style sheet (line-0 to line-7, fill-0 to fill-7), so that the page decides between
// light and dark.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

// Escapes text for HTML content and quoted attributes: & < > " ' become entities; control
// characters that markup may not contain, and invalid UTF-8, become U+FFFD.
std::string escape(std::string_view text);

// Formats "1,234,567".
std::string grouped(std::int64_t value);

// Formats a number with four significant digits, very large and small ones as 2.5 · 10⁻⁷; a dash
// for NaN.
std::string number(double value);

// Formats a decimal text in that style: "1.01e-05" as 1.01 · 10⁻⁵.
std::string typeset(const std::string& decimal);

// The same with three digits: enough for a curve or a share.
std::string short_number(double value);

// Formats "98.13 %"; a dash for NaN.
std::string percent(double fraction);
// Formats "98.1 %".
std::string short_percent(double fraction);

// Formats "12.5 MiB".
std::string memory_size(std::uint64_t bytes);

using Label = std::function<std::string(double)>;

// One of several charts over the steps of a training.
struct LineChart {
  std::string name{};       // of the quantity, for hover titles: "accuracy"
  std::vector<double> x{};  // increasing
  std::vector<double> y{};  // NaN: not measured at that x
  double last_x = 1;        // the end of the axis, which begins at 0
  std::string x_name{};
  Label label = number;  // formats a value
  int colour = 0;
};

// Returns the line, a grid, the last value beside its dot, and a hover title for each point; a
// sentence when no value is finite.
std::string line_chart(const LineChart& chart);

struct HistogramChart {
  std::vector<double> edges{};  // counts.size() + 1, increasing
  std::vector<std::int64_t> counts{};
  std::int64_t below = 0, above = 0;  // what lies outside of the edges: bars apart, if not 0
  // Marked by a line, with the bars above it in another colour; NaN: none.
  double bound = std::numeric_limits<double>::quiet_NaN();
  std::string bound_name{};
  std::string x_name{};
  std::string y_name = "number";
  bool logarithmic = false;  // the axis of edges and bound, which are positive then
};

// Returns bars with hover titles and the bound as a dashed line; a sentence when all counts are
// zero. Throws std::invalid_argument unless edges increase, are finite and one more than the
// counts, and positive on a logarithmic axis.
std::string histogram_chart(const HistogramChart& chart);

struct Share {
  std::string name;
  double value;  // >= 0
  std::string text;
};

// Returns one horizontal bar divided in proportion, coloured fill-0, fill-1, ... in turn; a
// sentence when the shares sum to 0.
std::string stacked_bar(const std::vector<Share>& shares);

// The number of colours that the style sheet must define.
inline constexpr int chart_colours = 8;

}  // namespace sotto
