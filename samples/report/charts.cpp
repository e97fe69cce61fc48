#include "samples/report/charts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/utf8.h"
#include "samples/report/svg.h"

namespace sotto {

using namespace svg;

namespace {

struct Dot {
  double x, y;
};

// Invisible columns between the midpoints of adjacent points, which show a point's hover title.
std::string hover_columns(const LineChart& chart, const std::vector<Dot>& dots, const Scale& x,
                          double bottom) {
  std::string svg;
  for (std::size_t k = 0; k < dots.size(); ++k) {
    const double begin = k == 0 ? left : x((dots[k - 1].x + dots[k].x) / 2);
    const double end = k + 1 == dots.size() ? right : x((dots[k].x + dots[k + 1].x) / 2);
    svg += fmt::format(
        "<rect class=\"hover\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\">"
        "<title>step {}: {} {}</title></rect>\n",
        begin, top, std::max(end - begin, 0.0), bottom - top,
        grouped(static_cast<std::int64_t>(dots[k].x)), escape(chart.name),
        escape(chart.label(dots[k].y)));
  }
  return svg;
}

// Formats an exponent in superscript digits.
std::string raised(int exponent) {
  constexpr const char* digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "⁻" : "";
  for (const char digit : fmt::format("{}", std::abs(exponent))) text += digits[digit - '0'];
  return text;
}

std::vector<Dot> measured(const LineChart& chart) {
  std::vector<Dot> dots;
  for (std::size_t k = 0; k < std::min(chart.x.size(), chart.y.size()); ++k) {
    if (std::isfinite(chart.y[k])) dots.push_back({chart.x[k], chart.y[k]});
  }
  return dots;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view next = text.substr(0, std::max<std::size_t>(bytes, 1));
    const auto code = static_cast<unsigned char>(next.front());
    switch (next.front()) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      case '\t':
      case '\n':
      case '\r': safe += next; break;
      default: safe += bytes == 0 || code < 0x20 || code == 0x7f ? "\xef\xbf\xbd" : next;
    }
    text.remove_prefix(next.size());
  }
  return safe;
}

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string number(double value) {
  if (std::isnan(value)) return "–";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  return typeset(fmt::format("{:.4g}", value == 0 ? 0.0 : value));
}

std::string short_number(double value) {
  return std::isfinite(value) ? typeset(fmt::format("{:.3g}", value == 0 ? 0.0 : value))
                              : number(value);
}

std::string typeset(const std::string& decimal) {
  const std::size_t e = decimal.find('e');
  if (e == std::string::npos) return decimal;
  const std::string factor = decimal.substr(0, e);
  return (factor == "1" ? "" : factor + " · ") + "10" + raised(std::stoi(decimal.substr(e + 1)));
}

std::string memory_size(std::uint64_t bytes) {
  constexpr double mebi = 1024.0 * 1024.0;
  const double size = static_cast<double>(bytes) / mebi;
  return size < 1024 ? fmt::format("{:.4g} MiB", size) : fmt::format("{:.4g} GiB", size / 1024);
}

std::string percent(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.4g} %", 100 * fraction) : "–";
}

std::string short_percent(double fraction) {
  return std::isfinite(fraction) ? short_number(100 * fraction) + " %" : "–";
}

std::string line_chart(const LineChart& chart) {
  const std::vector<Dot> dots = measured(chart);
  if (dots.empty()) return nothing;
  constexpr double bottom = 150;
  const auto [min, max] = std::minmax_element(dots.begin(), dots.end(),
                                              [](const Dot& a, const Dot& b) { return a.y < b.y; });
  const auto [low, high] = widen_range(min->y, max->y);
  const std::vector<double> ticks = round_ticks(low, high, 3);
  const Scale x{0, std::max(chart.last_x, 1.0), left, right};
  const Scale y{ticks.front(), ticks.back(), bottom, top};
  std::string svg = svg::open(bottom + below_axis, chart.name);
  svg += y_axis(y, ticks, chart.label) + x_axis(x, bottom, chart.x_name);
  svg += fmt::format("<polyline class=\"line-{}\" points=\"", chart.colour);
  for (const Dot& dot : dots) svg += fmt::format("{:.1f},{:.1f} ", x(dot.x), y(dot.y));
  svg += "\"/>\n";
  svg += fmt::format("<circle class=\"fill-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n",
                     chart.colour, x(dots.back().x), y(dots.back().y));
  svg +=
      fmt::format("<text class=\"last\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                  x(dots.back().x) + 10, y(dots.back().y) + 4, escape(chart.label(dots.back().y)));
  return svg + hover_columns(chart, dots, x, bottom) + "</svg>\n";
}

namespace {

void check_histogram(const HistogramChart& chart) {
  const std::vector<double>& edges = chart.edges;
  check(edges.size() == chart.counts.size() + 1, "histogram_chart: {} edges for {} counts",
        edges.size(), chart.counts.size());
  check(!chart.logarithmic || edges.front() > 0, "histogram_chart: logarithm of the edge {}",
        edges.front());
  for (std::size_t k = 0; k + 1 < edges.size(); ++k) {
    check(std::isfinite(edges[k]) && std::isfinite(edges[k + 1]) && edges[k] < edges[k + 1],
          "histogram_chart: edges {} and {} do not rise", edges[k], edges[k + 1]);
  }
}

// Where a value lies on the axis.
double place(const HistogramChart& chart, double value) {
  return chart.logarithmic ? std::log10(value) : value;
}

constexpr double histogram_bottom = 190;
// Of the bars for what lies beyond the edges.
constexpr double outer_width = 14, outer_gap = 24;

std::string bar(double begin, double end, const Scale& y, std::int64_t count, bool beyond,
                const std::string& what) {
  const double height = y(0) - y(static_cast<double>(count));
  return fmt::format(
      "<rect class=\"fill-{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
      "<title>{}: {}</title></rect>\n",
      beyond ? 1 : 0, begin, y(0) - height, std::max(end - begin - 1, 0.5), height, what,
      grouped(count));
}

std::string bars(const HistogramChart& chart, const Scale& x, const Scale& y) {
  std::string svg;
  for (std::size_t k = 0; k < chart.counts.size(); ++k) {
    svg += bar(x(place(chart, chart.edges[k])), x(place(chart, chart.edges[k + 1])), y,
               chart.counts[k], chart.edges[k] >= chart.bound,
               number(chart.edges[k]) + " to " + number(chart.edges[k + 1]));
  }
  return svg;
}

// What lies beyond the edges, apart from the other bars.
std::string outer_bars(const HistogramChart& chart, const Scale& y) {
  const double low = chart.edges.front(), high = chart.edges.back();
  std::string svg;
  if (chart.below > 0) {
    svg +=
        bar(left, left + outer_width, y, chart.below, low >= chart.bound, "below " + number(low)) +
        x_mark(left + outer_width / 2, histogram_bottom, "less");
  }
  if (chart.above > 0) {
    svg += bar(right, right + outer_width, y, chart.above, high >= chart.bound,
               "above " + number(high)) +
           x_mark(right + outer_width / 2, histogram_bottom, "more");
  }
  return svg;
}

std::string bound_line(const HistogramChart& chart, const Scale& x) {
  if (!(chart.bound >= chart.edges.front() && chart.bound <= chart.edges.back())) return "";
  const double at = x(place(chart, chart.bound));
  const bool right_half = at > (left + right) / 2;
  return rule("bound", at, top_below_name - 8, at, histogram_bottom) +
         text_at(at + (right_half ? -6 : 6), top_below_name, right_half ? "end" : "start",
                 chart.bound_name);
}

}  // namespace

std::string histogram_chart(const HistogramChart& chart) {
  if (chart.counts.empty()) return nothing;
  check_histogram(chart);
  const std::int64_t max = std::max(
      {chart.below, chart.above, *std::max_element(chart.counts.begin(), chart.counts.end())});
  if (max <= 0) return nothing;
  const std::vector<double> ticks = round_ticks(0, static_cast<double>(max), 4);
  const double first = chart.below > 0 ? left + outer_width + outer_gap : left;
  const double last = chart.above > 0 ? right - outer_gap : right;
  const Scale x{place(chart, chart.edges.front()), place(chart, chart.edges.back()), first, last};
  const Scale y{0, ticks.back(), histogram_bottom, top_below_name + 14};
  std::string svg = svg::open(histogram_bottom + below_axis, chart.x_name);
  svg += y_axis(y, ticks, [](double v) { return number(v); }) + y_name(chart.y_name);
  svg += chart.logarithmic ? log_axis(x, histogram_bottom, chart.x_name)
                           : x_axis(x, histogram_bottom, chart.x_name);
  return svg + bars(chart, x, y) + outer_bars(chart, y) + bound_line(chart, x) + "</svg>\n";
}

std::string stacked_bar(const std::vector<Share>& shares) {
  double total = 0;
  for (const Share& share : shares) total += share.value;
  if (!(total > 0) || !std::isfinite(total)) return nothing;
  constexpr double wide = 960, height = 30;
  std::string svg = svg::open_wide(wide, height, "shares of the time");
  double at = 0;
  for (std::size_t k = 0; k < shares.size(); ++k) {
    const double length = shares[k].value / total * wide;
    svg += fmt::format(
        "<rect class=\"fill-{}\" x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"{}\">"
        "<title>{}: {}, {}</title></rect>\n",
        k % chart_colours, at, std::max(length - 2, 0.5), height, escape(shares[k].name),
        escape(shares[k].text), percent(shares[k].value / total));
    at += length;
  }
  return svg + "</svg>\n";
}

}  // namespace sotto
