#include "samples/report/report.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/report/charts.h"
#include "samples/report/picture_grid.h"
#include "samples/report/report_style.h"

namespace sotto {

namespace {

constexpr const char* not_private_badge =
    "<span class=\"badge\" title=\"Computed from private data without noise: the guarantee does "
    "not "
    "cover it\">not private</span>";

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "–";
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

template <class Value>
bool any_measured(const TrainingReport& report, Value TrainingReport::Point::*value) {
  return std::any_of(report.points.begin(), report.points.end(),
                     [&](const auto& point) { return std::isfinite(point.*value); });
}

std::string section(const std::string& heading, bool is_private, const std::string& body) {
  return fmt::format("<section>\n<h2>{} {}</h2>\n{}</section>\n", escape(heading),
                     is_private ? "" : not_private_badge, body);
}

std::string list(const std::vector<std::string>& items) {
  if (items.empty()) return "<p class=\"empty\">None.</p>\n";
  std::string html = "<ul>\n";
  for (const std::string& item : items) html += fmt::format("<li>{}</li>\n", escape(item));
  return html + "</ul>\n";
}

// Negative values are ticks of an axis.
std::string shown_epsilon(double epsilon) {
  return epsilon < 0 ? number(epsilon) : typeset(epsilon_text(epsilon));
}
std::string shown_delta(double delta) { return typeset(delta_text(delta)); }

// The guarantee covers numbers computed from the model and from data that need no protection.
bool measure_is_private(const TrainingReport& report) {
  return report.privacy && !report.measured_on_private_data;
}

std::string (*measure_label(const TrainingReport& report))(double) {
  return report.measure_in_percent ? percent : number;
}

// "Test accuracy".
std::string measure_name(const TrainingReport& report) {
  return (report.held_out == "validation" ? "Validation " : "Test ") + report.measure;
}

struct Card {
  std::string name;
  std::string value;
  std::string below;
  bool is_private = true;
  bool alarm = false;
};

std::string card(const Card& shown) {
  return fmt::format(
      "<div class=\"card{}\"><div class=\"name\">{} {}</div><div class=\"value\">{}</div>"
      "<div class=\"below\">{}</div></div>\n",
      shown.alarm ? " alarm" : "", escape(shown.name), shown.is_private ? "" : not_private_badge,
      escape(shown.value), escape(shown.below));
}

std::string headline(const TrainingReport& report) {
  const std::int64_t steps = report.points.empty() ? 0 : report.points.back().step;
  std::string html = "<div class=\"cards\">\n";
  html += card({measure_name(report), measure_label(report)(report.test_measure),
                report.measured_on_private_data ? "on private data" : "on held-out data",
                measure_is_private(report)});
  if (report.privacy) {
    html += card({"Privacy", "ε = " + shown_epsilon(report.privacy->epsilon),
                  "at δ = " + shown_delta(report.privacy->delta)});
  } else {
    html += card({.name = "Privacy", .value = "None", .below = "no guarantee", .alarm = true});
  }
  html += card({"Epochs", number(report.epochs), fmt::format("{} steps", grouped(steps))});
  return html + card({"Time", duration(report.seconds), "wall clock", false}) + "</div>\n";
}

std::string banner(const TrainingReport& report) {
  if (report.privacy) return "";
  return fmt::format(
      "<div class=\"banner\" role=\"alert\"><strong>No privacy.</strong> The model and every "
      "number "
      "on this page may reveal training samples.{}{}</div>\n",
      report.no_privacy_reason.empty() ? "" : " ", escape(report.no_privacy_reason));
}

// One of the charts over steps, all on one axis.
std::string panel(const TrainingReport& report, const std::string& heading, bool is_private,
                  double TrainingReport::Point::*value, LineChart chart) {
  for (const auto& point : report.points) {
    chart.x.push_back(static_cast<double>(point.step));
    chart.y.push_back(point.*value);
  }
  if (!chart.x.empty()) {
    chart.first_x = chart.x.front();
    chart.last_x = chart.x.back();
  }
  return fmt::format("<figure>\n<figcaption>{} {}</figcaption>\n{}</figure>\n", escape(heading),
                     is_private ? "" : not_private_badge, line_chart(chart));
}

std::string training(const TrainingReport& report) {
  using Point = TrainingReport::Point;
  std::string html =
      panel(report, measure_name(report), measure_is_private(report), &Point::measure,
            {.name = report.measure, .label = measure_label(report)});
  if (report.privacy) {
    html += panel(report, "Privacy spent, ε", true, &Point::epsilon,
                  {.name = "epsilon", .label = shown_epsilon, .colour = 2});
  }
  const bool clipped = any_measured(report, &Point::clipped_fraction);
  html += panel(report, "Training loss", false, &Point::loss,
                {.name = "loss", .x_name = clipped ? "" : "step", .colour = 3});
  if (clipped) {
    html += panel(report, "Samples clipped", false, &Point::clipped_fraction,
                  {.name = "clipped", .x_name = "step", .label = percent, .colour = 1});
  }
  return section("Training", true, html);
}

std::string confusion_table(const TrainingReport::Confusion& confusion) {
  const std::size_t n = confusion.classes.size();
  check(confusion.counts.size() == n * n, "report: {} counts of {} classes",
        confusion.counts.size(), n);
  std::string html = "<figure>\n<figcaption>Rows: classes; columns: what they were taken for";
  html += "</figcaption>\n<table>\n<tr><th></th>";
  for (const std::string& name : confusion.classes)
    html += fmt::format("<th>{}</th>", escape(name));
  html += "</tr>\n";
  for (std::size_t row = 0; row < n; ++row) {
    html += fmt::format("<tr><th>{}</th>", escape(confusion.classes[row]));
    for (std::size_t column = 0; column < n; ++column) {
      const std::string count = grouped(confusion.counts[row * n + column]);
      html += row == column ? "<td><strong>" + count + "</strong></td>" : "<td>" + count + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</table>\n</figure>\n";
}

std::string results(const TrainingReport& report) {
  if (report.results.empty() && !report.confusion) return "";
  std::string html = "<table>\n";
  for (const auto& [name, value] : report.results)
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape(name), escape(value));
  html += "</table>\n";
  if (report.confusion) html += confusion_table(*report.confusion);
  return section("Results on the " + report.held_out + " data", measure_is_private(report), html);
}

std::string wrong_pictures(const TrainingReport& report) {
  if (report.wrong_pictures.empty()) return "";
  check(!report.measured_on_private_data, "report: pictures of private data");
  return section("Pictures taken for another class", measure_is_private(report),
                 "<p>Test pictures as they are, those of which the model is most certain first: "
                 "publish this page only if they may be published.</p>\n" +
                     picture_grid(report.wrong_pictures));
}

std::string generated(const TrainingReport& report) {
  if (report.generated_text.empty()) return "";
  return section("Text that the model writes", report.privacy.has_value(),
                 "<pre>" + escape(report.generated_text) + "</pre>\n");
}

std::string norms(const TrainingReport& report) {
  if (report.norms.empty()) return "";
  const TrainingReport::NormHistogram& last = report.norms.back();
  HistogramChart chart{.edges = last.edges,
                       .counts = last.counts,
                       .bound = last.clip_bound,
                       .bound_name = fmt::format("clip bound C = {}", number(last.clip_bound)),
                       .x_name = "L2 norm",
                       .logarithmic = last.edges.front() > 0};
  std::string html = fmt::format(
      "<p>Per-sample gradients before clipping, up to step {}. {} of them had norms above the "
      "bound "
      "and were scaled down to it.</p>\n",
      grouped(last.step), percent(last.clipped_fraction));
  return section("Gradient norms", false, html + histogram_chart(chart));
}

std::string phase_row(const TrainingReport::Phase& phase, std::size_t k, double total,
                      std::uint64_t largest) {
  const double memory = static_cast<double>(phase.peak_bytes);
  return fmt::format(
      "<tr><td><span class=\"key back-{}\"></span>{}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"n\">{}</td>"
      "<td class=\"meter\"><div style=\"width:{:.1f}%\"></div></td></tr>\n",
      k % chart_colours, escape(phase.name), duration(phase.seconds),
      total > 0 ? fmt::format("{:.1f} %", 100 * phase.seconds / total) : "–",
      memory_size(phase.peak_bytes),
      100 * memory / static_cast<double>(std::max<std::uint64_t>(largest, 1)));
}

std::string phases(const TrainingReport& report) {
  if (report.phases.empty()) return "";
  double total = 0;
  std::uint64_t largest = 0;
  std::vector<Share> shares;
  for (const auto& phase : report.phases) {
    total += phase.seconds;
    largest = std::max(largest, phase.peak_bytes);
    shares.push_back({phase.name, phase.seconds, duration(phase.seconds)});
  }
  std::string html = stacked_bar(shares);
  html +=
      "<table>\n<tr><th>Phase</th><th class=\"n\">Time</th><th class=\"n\">Share</th>"
      "<th class=\"n\">Peak memory</th><th></th></tr>\n";
  for (std::size_t k = 0; k < report.phases.size(); ++k) {
    html += phase_row(report.phases[k], k, total, largest);
  }
  html += "</table>\n";
  if (report.communication) {
    for (const std::string& line : report.communication->lines)
      html += "<p>" + escape(line) + "</p>\n";
  }
  return section("Time and memory", false, html);
}

std::string settings(const TrainingReport& report) {
  if (report.settings.empty()) return "";
  std::string html = "<dl class=\"settings\">\n";
  for (const auto& setting : report.settings) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(setting.name),
                        escape(setting.value));
  }
  return section("Settings", true, html + "</dl>\n");
}

std::string facts(const PrivacyStatement& privacy) {
  const std::pair<const char*, std::string> rows[] = {
      {"Unit of privacy", privacy.unit},       {"Neighbouring data sets", privacy.relation},
      {"Sampling", privacy.sampling},          {"Clipping", privacy.clipping},
      {"Mechanism", privacy.mechanism},        {"Accountant", privacy.accountant},
      {"Releases", grouped(privacy.releases)}, {"Composition", privacy.composition},
  };
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& [name, value] : rows) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, escape(value));
  }
  return html + "</dl>\n";
}

std::string statement(const TrainingReport& report) {
  if (!report.privacy) {
    return section("Privacy statement", true,
                   "<p class=\"claim\">No privacy is claimed: the model was trained without a "
                   "differential privacy guarantee.</p>\n");
  }
  const PrivacyStatement& privacy = *report.privacy;
  if (!privacy.not_private.empty()) {
    return section("Privacy statement", true,
                   "<p class=\"claim\">No privacy is claimed, because of:</p>\n" +
                       list(privacy.not_private) + facts(privacy));
  }
  std::string html = fmt::format(
      "<p class=\"claim\">Training was (ε, δ)-differentially private with ε = {} and δ = {}: for "
      "any "
      "two neighbouring data sets and any set of outcomes, its probability under one is at most "
      "e<sup>ε</sup> times its probability under the other, plus δ.</p>\n",
      shown_epsilon(privacy.epsilon), shown_delta(privacy.delta));
  html += facts(privacy) + "<div class=\"columns\">\n<div>\n<h3>Covered</h3>\n" +
          list(privacy.covered) + "</div>\n<div>\n<h3>Not covered</h3>\n" +
          list(privacy.not_covered) + "</div>\n</div>\n";
  if (!privacy.notes.empty()) html += "<h3>Notes</h3>\n" + list(privacy.notes);
  return section("Privacy statement", true, html);
}

std::string warnings(const TrainingReport& report) {
  return section("Numbers on this page that are not private", true,
                 "<p>These come from the training data without noise. No guarantee covers them: "
                 "keep them, and this page, as secret as the data.</p>\n" +
                     list(not_private_numbers(report)));
}

}  // namespace

std::string TrainingReport::Confusion::to_text() const {
  static constexpr std::size_t width = 12;
  const auto cell = [](const std::string& text) {
    return fmt::format("  {:>{}.{}}", text, width, width);
  };
  std::string text = cell("");
  for (const std::string& name : classes) text += cell(name);
  for (std::size_t k = 0; k < counts.size(); ++k) {
    if (k % classes.size() == 0) text += "\n" + cell(classes[k / classes.size()]);
    text += cell(fmt::to_string(counts[k]));
  }
  return text + "\n";
}

std::vector<std::string> not_private_numbers(const TrainingReport& report) {
  using Point = TrainingReport::Point;
  std::vector<std::string> numbers;
  if (!report.privacy) numbers.push_back("The model, and whatever is measured with it");
  if (any_measured(report, &Point::loss)) numbers.push_back("Training loss, at every step");
  if (any_measured(report, &Point::clipped_fraction)) {
    numbers.push_back("Fraction of samples clipped, at every step");
  }
  if (!report.norms.empty()) {
    numbers.push_back(
        "Distribution of per-sample gradient norms, and the fraction beyond the bound");
  }
  numbers.push_back("Time and memory: they grow with the number of samples drawn");
  if (report.measured_on_private_data &&
      (std::isfinite(report.test_measure) || any_measured(report, &Point::measure))) {
    numbers.push_back(measure_name(report) + ": it is measured on private data");
    numbers.push_back(
        "The number of samples that it is measured on, where a unit may have several");
  }
  numbers.insert(numbers.end(), report.not_private.begin(), report.not_private.end());
  return numbers;
}

std::string to_html(const TrainingReport& report) {
  if (report.privacy) {
    const auto [epsilon, delta] = std::pair(report.privacy->epsilon, report.privacy->delta);
    check(epsilon >= 0 && delta >= 0 && delta < 1, "report: epsilon {} with delta {}", epsilon,
          delta);
  }
  const std::string title = escape(report.title);
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n"
             "<style>\n{}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{}</h1>\n</header>\n",
             title, report_style, title) +
         banner(report) + headline(report) + statement(report) + results(report) +
         wrong_pictures(report) + generated(report) + training(report) + norms(report) +
         phases(report) + settings(report) + warnings(report) + "</main>\n</body>\n</html>\n";
}

}  // namespace sotto
