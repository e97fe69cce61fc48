#include "samples/memory_tour/page.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "memory/planning/policy.h"
#include "samples/report/curve_chart.h"
#include "samples/report/page.h"

namespace sotto::memory_tour {

namespace {

std::string in_units(std::int64_t bytes) {
  return memory::bytes_text(static_cast<std::size_t>(bytes));
}

std::string table(const Exercise& exercise) {
  std::int64_t max = 1;
  for (const Row& row : exercise.rows) max = std::max(max, row.peak);
  std::string html =
      "<div class=\"scroll\">\n<table>\n<tr><th></th><th class=\"n\">by the formula</th><th "
      "class=\"n\">counted</th>"
      "<th class=\"n\">peak of the step</th><th></th><th class=\"n\">seconds</th></tr>\n";
  for (const Row& row : exercise.rows) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"meter\"><div style=\"width:{:.1f}%\"></div></td><td class=\"n\">{:.3f}</td>"
        "</tr>\n",
        escape(row.technique), in_units(row.predicted), in_units(row.measured), in_units(row.peak),
        100.0 * static_cast<double>(row.peak) / static_cast<double>(max), row.seconds);
  }
  return html + "</table>\n</div>\n";
}

// Plots the bytes of each row over its x.
std::string plot(const Exercise& exercise) {
  Curve predicted{.name = "by the formula", .dash = 1}, counted{.name = "counted", .colour = 1},
      peak{.name = "peak of the step", .colour = 2};
  if (exercise.over.empty()) return {};
  for (const Row& row : exercise.rows) {
    for (auto& [curve, bytes] : {std::pair(&predicted, row.predicted),
                                 std::pair(&counted, row.measured), std::pair(&peak, row.peak)}) {
      curve->x.push_back(row.x);
      curve->y.push_back(static_cast<double>(bytes));
    }
  }
  return curve_chart({.name = "bytes over the " + exercise.over,
                      .x_name = exercise.over,
                      .y_name = "bytes",
                      .curves = {peak, counted, predicted},
                      .log_x = true,
                      .label = [](double bytes) {
                        return in_units(static_cast<std::int64_t>(std::max(bytes, 0.0)));
                      }});
}

std::string section_of(const Exercise& exercise) {
  return section(exercise.title,
                 fmt::format("<p>Counted: {}.</p>\n<p>{}.</p>\n{}{}", escape(exercise.counted),
                             escape(exercise.formula), table(exercise), plot(exercise)));
}

}  // namespace

std::string to_text(const std::vector<Exercise>& exercises) {
  std::string text;
  for (const Exercise& exercise : exercises) {
    text += fmt::format("{}\n  {}\n  {:28}{:>15}{:>15}{:>15}{:>10}\n", exercise.title,
                        exercise.formula, "", "formula", "counted", "step's peak", "seconds");
    for (const Row& row : exercise.rows) {
      text += fmt::format("  {:28}{:>15}{:>15}{:>15}{:>10.3f}\n", row.technique,
                          in_units(row.predicted), in_units(row.measured), in_units(row.peak),
                          row.seconds);
    }
    text += "\n";
  }
  return text;
}

std::string to_html(const Network& network, const std::vector<Exercise>& exercises) {
  std::string body =
      fmt::format("<p class=\"claim\">{} linear layers of width {} with tanh, a batch of {}.</p>\n",
                  network.layers, network.width, network.batch);
  for (const Exercise& exercise : exercises) body += section_of(exercise);
  return sotto::to_html(Page{.title = "Memory of a training step",
                             .body = body,
                             .style = curve_style,
                             .origin = provenance()});
}

nlohmann::json to_json(const Network& network, const std::vector<Exercise>& exercises) {
  nlohmann::json all = nlohmann::json::array();
  for (const Exercise& exercise : exercises) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Row& row : exercise.rows) {
      rows.push_back({{"technique", row.technique},
                      {"predicted", row.predicted},
                      {"measured", row.measured},
                      {"peak", row.peak},
                      {"seconds", row.seconds}});
    }
    all.push_back({{"title", exercise.title},
                   {"counted", exercise.counted},
                   {"formula", exercise.formula},
                   {"rows", rows}});
  }
  return {{"width", network.width},
          {"layers", network.layers},
          {"batch", network.batch},
          {"exercises", all}};
}

}  // namespace sotto::memory_tour
