#include "samples/report/band_chart.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "samples/report/svg.h"

namespace sotto {

using namespace svg;

namespace {

constexpr double bottom = 380, wide_right = 940;

class Stack {
 public:
  explicit Stack(const BandChart& chart) : chart_(chart) {
    std::vector<double> total(chart.x.size());
    edges_.push_back(total);
    for (const Band& band : chart.bands) {
      check(band.y.size() == chart.x.size(), "band_chart: {} values for {} x", band.y.size(),
            chart.x.size());
      for (std::size_t k = 0; k < total.size(); ++k) total[k] += band.y[k];
      edges_.push_back(total);
    }
  }

  double highest() const {
    const std::vector<double>& top_edge = edges_.back();
    return top_edge.empty() ? 0 : *std::max_element(top_edge.begin(), top_edge.end());
  }

  std::string draw() const {
    const auto [first, last] = widen_range(chart_.x.front(), chart_.x.back());
    const std::vector<double> ticks = round_ticks(0, highest(), 6);
    const Scale x{first, last, left, wide_right},
        y{0, std::max(highest(), ticks.back()), bottom, top};
    std::string svg = svg::open_wide(wide_right + 20, bottom + below_axis, chart_.name);
    svg += y_axis(y, ticks, chart_.label, wide_right) + x_axis(x, bottom, chart_.x_name);
    for (std::size_t k = 0; k < chart_.bands.size(); ++k) svg += shapes(k, x, y);
    return "<div class=\"scroll\">\n" + svg + "</svg>\n</div>\n";
  }

 private:
  // One shape for each interval in which the band is not zero.
  std::string shapes(std::size_t band, const Scale& x, const Scale& y) const {
    const std::vector<double>& values = chart_.bands[band].y;
    std::string svg;
    for (std::size_t begin = 0; begin < values.size(); ++begin) {
      if (values[begin] == 0) continue;
      std::size_t end = begin;
      while (end < values.size() && values[end] > 0) ++end;
      svg += shape(band, begin, end, x, y);
      begin = end;
    }
    return svg;
  }

  // An amount holds until the next x, or to the end.
  std::string shape(std::size_t band, std::size_t begin, std::size_t end, const Scale& x,
                    const Scale& y) const {
    const Band& drawn = chart_.bands[band];
    std::string there, back;
    for (std::size_t k = begin; k < end; ++k) {
      const double from = x(chart_.x[k]),
                   to = k + 1 < chart_.x.size() ? x(chart_.x[k + 1]) : wide_right;
      const double above = y(edges_[band + 1][k]), below = y(edges_[band][k]);
      there += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", from, above, to, above);
      back.insert(0, fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", to, below, from, below));
    }
    return fmt::format("<polygon class=\"band {}\" points=\"{}{}\"><title>{}</title></polygon>\n",
                       colour_class("fill", drawn.colour), there, back, escape(drawn.title));
  }

  const BandChart& chart_;
  std::vector<std::vector<double>> edges_;  // the lowest first
};

}  // namespace

std::string colour_class(const char* what, int colour) {
  return colour < chart_colours ? fmt::format("{}-{}", what, colour) : fmt::format("{}-rest", what);
}

std::string band_chart(const BandChart& chart) {
  const Stack stack(chart);
  return stack.highest() > 0 ? stack.draw() : nothing;
}

}  // namespace sotto
