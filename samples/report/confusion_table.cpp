#include "samples/report/confusion_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "samples/report/charts.h"

namespace sotto {

namespace {

constexpr double darkest = 50;  // percent of the colour, so that the count on it can be read

std::string shaded(std::int64_t count, std::int64_t total, bool right) {
  const double share = total > 0 ? static_cast<double>(count) / static_cast<double>(total) : 0;
  return fmt::format(
      "<td class=\"n\" style=\"background:color-mix(in srgb, var(--c{}) {:.0f}%, transparent)\">"
      "{}</td>",
      right ? 0 : 1, std::ceil(darkest * share), grouped(count));
}

}  // namespace

std::string confusion_table(const TrainingReport::Confusion& confusion) {
  const std::size_t n = confusion.classes.size();
  check(confusion.counts.size() == n * n, "report: {} counts of {} classes",
        confusion.counts.size(), n);
  std::string html = fmt::format(
      "<div class=\"scroll\">\n<table class=\"confusion\">\n<tr><th></th><th class=\"n\" "
      "colspan=\"{}\">predicted class</th></tr>\n<tr><th>true class</th>",
      n + 1);
  for (const std::string& name : confusion.classes)
    html += fmt::format("<th class=\"n\">{}</th>", escape(name));
  html += "<th class=\"n\">total</th></tr>\n";
  std::vector<std::int64_t> predicted(n);
  std::int64_t all = 0;
  for (std::size_t row = 0; row < n; ++row) {
    const std::int64_t* const counts = confusion.counts.data() + row * n;
    std::int64_t total = 0;
    for (std::size_t column = 0; column < n; ++column) {
      total += counts[column];
      predicted[column] += counts[column];
    }
    html += fmt::format("<tr><th>{}</th>", escape(confusion.classes[row]));
    for (std::size_t column = 0; column < n; ++column)
      html += shaded(counts[column], total, row == column);
    html += fmt::format("<td class=\"n\">{}</td></tr>\n", grouped(total));
    all += total;
  }
  html += "<tr><th>total</th>";
  for (const std::int64_t total : predicted)
    html += fmt::format("<td class=\"n\">{}</td>", grouped(total));
  return html + fmt::format("<td class=\"n\">{}</td></tr>\n</table>\n</div>\n", grouped(all));
}

}  // namespace sotto
