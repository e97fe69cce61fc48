#include "samples/report/curve_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "core/error.h"
#include "samples/report/svg.h"

namespace sotto {

using namespace svg;

namespace {

constexpr double bottom = 280;

// The range of an axis, linear or logarithmic.
struct Range {
  bool logarithmic;
  double low = std::numeric_limits<double>::infinity(), high = -low;

  bool shows(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  double place(double value) const { return logarithmic ? std::log10(value) : value; }
  double value(double place) const { return logarithmic ? std::pow(10, place) : place; }
  void include(double value) {
    low = std::min(low, place(value));
    high = std::max(high, place(value));
  }
};

// Round numbers; powers of ten on a logarithmic axis that contains at least two of them.
std::vector<double> ticks_of(const Range& range, double low, double high, int wanted) {
  if (!range.logarithmic) return round_ticks(low, high, wanted);
  std::vector<double> ticks;
  const double step = std::max(1.0, std::ceil((high - low) / wanted));
  for (double tick = std::ceil(low - 1e-9); tick <= high + 1e-9; tick += step) {
    ticks.push_back(tick);
  }
  if (ticks.size() >= 2) return ticks;
  ticks.clear();
  for (int k = 0; k <= wanted; ++k) ticks.push_back(low + (high - low) * k / wanted);
  return ticks;
}

class Plot {
 public:
  explicit Plot(const CurveChart& chart) : chart_(chart), x_{chart.log_x}, y_{chart.log_y} {
    for (const Curve& curve : chart.curves) {
      check(curve.x.size() == curve.y.size(), "curve_chart: {} x for {} y", curve.x.size(),
            curve.y.size());
      for (std::size_t k = 0; k < curve.x.size(); ++k) include(curve.x[k], curve.y[k]);
    }
  }

  bool empty() const { return !(x_.low <= x_.high); }

  std::string draw() const {
    const auto [first_x, last_x] = widen_range(x_.low, x_.high);
    const auto [first_y, last_y] = widen_range(y_.low, y_.high);
    const std::vector<double> x_ticks = ticks_of(x_, first_x, last_x, 5);
    const std::vector<double> y_ticks = ticks_of(y_, first_y, last_y, 5);
    const Scale x{first_x, last_x, left, right};
    const Scale y{std::min(first_y, y_ticks.front()), std::max(last_y, y_ticks.back()), bottom,
                  top_below_name};
    std::string svg = svg::open(bottom + below_axis, chart_.name);
    svg += y_axis(y, y_ticks, [&](double tick) { return number(y_.value(tick)); });
    svg += y_name(chart_.y_name + (y_.logarithmic ? " (log scale)" : ""));
    svg += axis_below(x, x_ticks);
    if (chart_.mark && x_.shows(*chart_.mark)) {
      const double at = x(x_.place(*chart_.mark));
      if (at >= left && at <= right) svg += rule("bound", at, top_below_name, at, bottom);
    }
    for (const Curve& curve : chart_.curves) svg += draw(curve, x, y);
    return svg + "</svg>\n";
  }

 private:
  void include(double x, double y) {
    if (!x_.shows(x) || !y_.shows(y)) return;
    x_.include(x);
    y_.include(y);
  }

  std::string axis_below(const Scale& x, const std::vector<double>& ticks) const {
    std::string svg;
    for (const double tick : ticks) {
      if (tick < x.low || tick > x.high) continue;
      svg += x_mark(x(tick), bottom, tick_text(x_.value(tick)));
    }
    return svg + x_name(bottom, chart_.x_name + (x_.logarithmic ? " (log scale)" : ""));
  }

  std::string draw(const Curve& curve, const Scale& x, const Scale& y) const {
    const int colour = curve.colour % chart_colours;
    std::string line =
        fmt::format("<polyline class=\"line-{} dash-{}\" points=\"", colour, curve.dash);
    std::string dots;
    for (std::size_t k = 0; k < curve.x.size(); ++k) {
      if (!x_.shows(curve.x[k]) || !y_.shows(curve.y[k])) continue;
      const double at = x(x_.place(curve.x[k])), height = y(y_.place(curve.y[k]));
      line += fmt::format("{:.1f},{:.1f} ", at, height);
      dots += fmt::format(
          "<circle class=\"fill-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\">"
          "<title>{}{}{}: {}</title></circle>\n",
          colour, at, height, escape(curve.name), curve.name.empty() ? "" : ", ",
          tick_text(curve.x[k]), escape(chart_.label(curve.y[k])));
    }
    return line + "\"/>\n" + dots;
  }

  const CurveChart& chart_;
  Range x_, y_;
};

std::string legend(const CurveChart& chart) {
  std::string html = "<ul class=\"legend\">\n";
  for (const Curve& curve : chart.curves) {
    html += fmt::format(
        "<li><svg viewBox=\"0 0 28 8\"><polyline class=\"line-{} dash-{}\" points=\"0,4 28,4\"/>"
        "</svg>{}</li>\n",
        curve.colour % chart_colours, curve.dash, escape(curve.name));
  }
  return html + "</ul>\n";
}

}  // namespace

std::string curve_chart(const CurveChart& chart) {
  const Plot plot(chart);
  if (plot.empty()) return nothing;
  return plot.draw() + (chart.curves.size() > 1 ? legend(chart) : "");
}

}  // namespace sotto
