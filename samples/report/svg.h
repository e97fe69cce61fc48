// The common parts of all charts: the plot area, scales, round ticks, lines and texts as inline
// SVG. A chart is as wide as a phone, so that its labels can be read there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "samples/report/charts.h"

namespace sotto::svg {

inline constexpr double width = 480;
inline constexpr double left = 60;    // room for the labels of the y axis
inline constexpr double right = 404;  // room beyond it for the last value
inline constexpr double top = 12;
inline constexpr double top_below_name = 32;  // of a plot whose y axis has a name
inline constexpr double below_axis = 46;      // room for the labels of the x axis, and its name
inline constexpr const char* nothing = "<p class=\"empty\">Nothing was recorded.</p>\n";

struct Scale {
  double low, high;  // values
  double from, to;   // pixels

  double operator()(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

// About `wanted` round numbers, 1, 2 or 5 times a power of ten apart, that cover [low, high].
std::vector<double> round_ticks(double low, double high, int wanted);

// Widens a range that is a single value, to both sides.
std::pair<double, double> widen_range(double low, double high);

// The opening tag of a picture of this height, with a description for screen readers.
std::string open(double height, const std::string& what);
// That of one of another width, which phones scroll.
std::string open_wide(double wide, double height, const std::string& what);

// A text; `anchor` is start, middle or end, and the text is escaped.
std::string text_at(double x, double y, const char* anchor, const std::string& text);

// A straight line with a class of the style sheet.
std::string rule(const char* style, double x1, double y1, double x2, double y2);

// A labelled grid line at each tick.
std::string y_axis(const Scale& y, const std::vector<double>& ticks, const Label& label,
                   double to = right);
// The name of that axis, above it.
std::string y_name(const std::string& name);

// A label below the axis, and its mark.
std::string x_mark(double x, double bottom, const std::string& label);
// The name of that axis, below its labels.
std::string x_name(double bottom, const std::string& name);

// Labelled marks below the plot, and the name of the axis.
std::string x_axis(const Scale& x, double bottom, const std::string& name);

// The same for a logarithmic axis, whose scale is that of decimal logarithms.
std::string log_axis(const Scale& x, double bottom, const std::string& name);

// "14,063"; large numbers and fractions as number() formats them.
std::string tick_text(double value);

}  // namespace sotto::svg
