#include "samples/report/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace sotto::svg {

std::vector<double> round_ticks(double low, double high, int wanted) {
  const double rough = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5, 2, 1}) {
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  // Each tick is the double nearest to a short decimal, which a product with 0.1 is not.
  const double parts = std::round(1 / power), whole = std::round(step / power);
  for (double k = first; k <= last; ++k) ticks.push_back(parts > 1 ? k * whole / parts : k * step);
  return ticks;
}

std::pair<double, double> widen_range(double low, double high) {
  const double min = 1e-3 * std::max({std::abs(low), std::abs(high), 1e-3});
  return high - low >= min ? std::pair(low, high) : std::pair(low - min, high + min);
}

std::string open(double height, const std::string& what) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", width, height,
                     escape(what));
}

std::string open_wide(double wide, double height, const std::string& what) {
  return fmt::format("<svg class=\"wide\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                     wide, height, escape(what));
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape(text));
}

std::string rule(const char* style, double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1,
      y1, x2, y2);
}

std::string y_axis(const Scale& y, const std::vector<double>& ticks, const Label& label,
                   double to) {
  std::string svg;
  for (const double tick : ticks) {
    svg += rule("grid", left, y(tick), to, y(tick));
    svg += text_at(left - 8, y(tick) + 4, "end", label(tick));
  }
  return svg;
}

std::string y_name(const std::string& name) { return text_at(left, top + 2, "start", name); }

std::string x_mark(double x, double bottom, const std::string& label) {
  return rule("grid", x, bottom, x, bottom + 4) + text_at(x, bottom + 20, "middle", label);
}

std::string x_name(double bottom, const std::string& name) {
  return text_at((left + right) / 2, bottom + 40, "middle", name);
}

std::string x_axis(const Scale& x, double bottom, const std::string& name) {
  std::string svg;
  for (const double tick : round_ticks(x.low, x.high, 5)) {
    if (tick >= x.low && tick <= x.high) svg += x_mark(x(tick), bottom, tick_text(tick));
  }
  return svg + text_at((x.from + x.to) / 2, bottom + 40, "middle", name);
}

std::string log_axis(const Scale& x, double bottom, const std::string& name) {
  constexpr double one_decade = 1.3, few_decades = 3, most_marks = 6;
  const double decades = x.high - x.low;
  std::vector<double> digits{1};
  if (decades <= few_decades) digits = {1, 3};
  if (decades <= one_decade) digits = {1, 2, 5};
  const double step = std::max(1.0, std::ceil(decades / most_marks));
  std::string svg;
  for (double power = std::floor(x.low / step) * step; power <= x.high; power += step) {
    for (const double digit : digits) {
      const double at = power + std::log10(digit);
      if (at >= x.low && at <= x.high)
        svg += x_mark(x(at), bottom, number(digit * std::pow(10, power)));
    }
  }
  return svg + x_name(bottom, name);
}

std::string tick_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e7;
  return whole ? grouped(static_cast<std::int64_t>(value)) : number(value);
}

}  // namespace sotto::svg
