#include "samples/report/report.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/join.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/report/charts.h"
#include "samples/report/confusion_table.h"
#include "samples/report/page.h"
#include "samples/report/picture_grid.h"
#include "samples/report/settings_section.h"
#include "samples/report/statement_section.h"

namespace sotto {

namespace {

constexpr const char* not_private_badge =
    "<span class=\"badge\" title=\"Computed from private data without noise: the guarantee does "
    "not cover it\">not private</span>";

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

// A section of numbers that are not private, under its heading in HTML.
std::string badged_section(const std::string& heading, bool is_private, const std::string& body) {
  if (is_private) return section(heading, body);
  return section("", fmt::format("<h2>{} {}</h2>\n{}", escape(heading), not_private_badge, body));
}

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
      "<div class=\"card{}\"><div class=\"name\">{}</div><div class=\"value\">{}</div>"
      "<div class=\"below\">{}</div>{}</div>\n",
      shown.alarm ? " alarm" : "", escape(shown.name), escape(shown.value), escape(shown.below),
      shown.is_private ? "" : not_private_badge);
}

std::string headline(const TrainingReport& report) {
  const std::int64_t steps = report.points.empty() ? 0 : report.points.back().step;
  const auto label = measure_label(report);
  const std::string data = report.measured_on_private_data ? "on private data" : "on held-out data";
  std::string html = "<div class=\"cards\">\n";
  html +=
      card({measure_name(report), label(report.test_measure), data, measure_is_private(report)});
  if (std::isfinite(report.ordinary_measure))
    html +=
        card({"Without privacy", label(report.ordinary_measure), "of ordinary training", false});
  if (report.privacy) {
    html += card({"Privacy", "ε = " + shown_epsilon(report.privacy->epsilon),
                  "at δ = " + shown_delta(report.privacy->delta)});
  } else {
    html += card({.name = "Privacy", .value = "None", .below = "no guarantee", .alarm = true});
  }
  html += card({"Epochs", short_number(report.epochs), fmt::format("{} steps", grouped(steps))});
  return html + card({"Time", duration(report.seconds), "of steps and evaluations", false}) +
         "</div>\n";
}

// The first words of a sentence, before it goes into details: "time and memory".
std::string short_name(const std::string& sentence) {
  std::string name = sentence.substr(0, sentence.find_first_of(":,"));
  name[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
  return name;
}

std::string banners(const TrainingReport& report) {
  if (!report.privacy)
    return banner("No privacy.",
                  "The model and every number on this page may reveal training samples: keep them "
                  "SECRET. " +
                      escape(report.no_privacy_reason));
  const std::string numbers = escape(join(not_private_numbers(report), "; ", short_name));
  return secret_banner(
      "It holds <a href=\"#not-private\">numbers without noise</a>, which no guarantee covers: " +
      numbers + ".");
}

// One of the charts over steps.
std::string panel(const TrainingReport& report, const std::string& heading, bool is_private,
                  double TrainingReport::Point::*value, LineChart chart) {
  chart.x_name = "step";
  for (const auto& point : report.points) {
    chart.x.push_back(static_cast<double>(point.step));
    chart.y.push_back(point.*value);
  }
  if (!chart.x.empty()) chart.last_x = chart.x.back();
  return fmt::format("<figure>\n<figcaption>{} {}</figcaption>\n{}</figure>\n", escape(heading),
                     is_private ? "" : not_private_badge, line_chart(chart));
}

std::string training(const TrainingReport& report) {
  using Point = TrainingReport::Point;
  std::string html = "<div class=\"charts\">\n";
  html += panel(report, measure_name(report), measure_is_private(report), &Point::measure,
                {.name = report.measure, .label = measure_label(report)});
  if (report.privacy) {
    html += panel(report, "Privacy spent, ε", true, &Point::epsilon,
                  {.name = "epsilon", .label = shown_epsilon, .colour = 2});
  }
  html += panel(report, "Training loss", false, &Point::loss,
                {.name = "loss", .label = short_number, .colour = 3});
  if (any_measured(report, &Point::clipped_fraction)) {
    html += panel(report, "Samples clipped", false, &Point::clipped_fraction,
                  {.name = "clipped", .label = short_percent, .colour = 1});
  }
  return section("Training", html + "</div>\n");
}

std::string results(const TrainingReport& report) {
  if (report.results.empty() && !report.confusion) return "";
  std::string html = "<table>\n";
  for (const auto& [name, value] : report.results)
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape(name), escape(value));
  html += "</table>\n";
  if (report.confusion) html += confusion_table(*report.confusion);
  return badged_section("Results on the " + report.held_out + " data", measure_is_private(report),
                        html);
}

std::string wrong_pictures(const TrainingReport& report) {
  if (report.wrong_pictures.empty()) return "";
  check(!report.measured_on_private_data, "report: pictures of private data");
  return badged_section(
      "Pictures with a wrong prediction", measure_is_private(report),
      "<p>Test pictures as they are, those of which the model is most certain first: "
      "publish this page only if they may be published.</p>\n" +
          picture_grid(report.wrong_pictures));
}

std::string generated(const TrainingReport& report) {
  if (report.generated_text.empty()) return "";
  return badged_section("Text that the model writes", report.privacy.has_value(),
                        "<pre>" + escape(report.generated_text) + "</pre>\n");
}

std::string norms(const TrainingReport& report) {
  if (report.norms.empty()) return "";
  const TrainingReport::NormHistogram& last = report.norms.back();
  const bool logarithmic = last.edges.front() > 0;
  const HistogramChart chart{
      .edges = last.edges,
      .counts = last.counts,
      .below = last.below,
      .above = last.above,
      .bound = last.clip_bound,
      .bound_name = fmt::format("clip bound C = {}", short_number(last.clip_bound)),
      .x_name = std::string("L2 norm of the gradient") + (logarithmic ? " (log scale)" : ""),
      .y_name = "number of gradients",
      .logarithmic = logarithmic};
  std::string html = fmt::format(
      "<p>Per-sample gradients before clipping, of {} up to step {}. {} of them had "
      "norms above the bound and were scaled down to it.{}</p>\n",
      last.steps == 1 ? "one step" : fmt::format("the {} steps", grouped(last.steps)),
      grouped(last.step), short_percent(last.clipped_fraction),
      last.below + last.above > 0 ? " The bars that stand apart count all norms beyond the axis."
                                  : "");
  return badged_section("Gradient norms", false, html + histogram_chart(chart));
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
  std::string html =
      "<p>By the clock, since this program was started; reading data, checkpoints and this page "
      "are left out. Memory is the most that was in use at once.</p>\n" +
      stacked_bar(shares);
  html +=
      "<div class=\"scroll\">\n<table>\n<tr><th>Phase</th><th class=\"n\">Time</th><th "
      "class=\"n\">Share</th>"
      "<th class=\"n\">Peak memory</th><th></th></tr>\n";
  for (std::size_t k = 0; k < report.phases.size(); ++k) {
    html += phase_row(report.phases[k], k, total, largest);
  }
  html += "</table>\n</div>\n";
  if (report.communication) {
    for (const std::string& line : report.communication->lines)
      html += "<p>" + escape(line) + "</p>\n";
  }
  return badged_section("Time and memory", false, html);
}

std::string warnings(const TrainingReport& report) {
  return section("",
                 "<h2 id=\"not-private\">Numbers on this page that are not private</h2>\n<p>These "
                 "come from the training data without noise. No guarantee covers them: keep them, "
                 "and this page, as secret as the data.</p>\n" +
                     bullets(not_private_numbers(report)));
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
  if (std::isfinite(report.ordinary_measure))
    numbers.push_back(measure_name(report) +
                      " without privacy: it is that of a model that was trained ordinarily");
  numbers.insert(numbers.end(), report.not_private.begin(), report.not_private.end());
  return numbers;
}

std::string to_html(const TrainingReport& report) {
  if (report.privacy) {
    const auto [epsilon, delta] = std::pair(report.privacy->epsilon, report.privacy->delta);
    check(epsilon >= 0 && delta >= 0 && delta < 1, "report: epsilon {} with delta {}", epsilon,
          delta);
  }
  const bool claims_privacy = report.privacy && report.privacy->not_private.empty();
  return to_html(Page{.title = report.title + (claims_privacy ? ", trained privately" : ""),
                      .body = banners(report) + headline(report) + statement_section(report) +
                              results(report) + wrong_pictures(report) + generated(report) +
                              training(report) + norms(report) + phases(report) +
                              settings_section(report.settings) + warnings(report),
                      .style = "",
                      .origin = report.provenance});
}

}  // namespace sotto
