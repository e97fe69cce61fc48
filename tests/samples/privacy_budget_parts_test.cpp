#include <cmath>
#include <limits>
#include <random>

#include "tests/support/catch.h"

#include "dp/numerics/directed_rounding.h"
#include "samples/privacy_budget/answer.h"
#include "samples/privacy_budget/progress.h"
#include "samples/privacy_budget/training_phases.h"
#include "samples/report/curve_chart.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::budget;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("an upper bound is printed rounded up, a lower bound rounded down") {
  CHECK(rounded_up(2.37901) == "2.38");
  CHECK(rounded_down(2.37999) == "2.379");
  CHECK(rounded_up(2.5) == "2.5");
  CHECK(rounded_down(2.5) == "2.5");
  CHECK(rounded_up(9.9991) == "10");
  CHECK(rounded_down(1.00001e-5) == "1e-05");
  CHECK(rounded_down(std::nextafter(1.0, 0.0)) == "0.9999");
  CHECK(rounded_up(std::nextafter(1.0, 2.0)) == "1.001");
  CHECK(rounded_up(1.00001e-5, 3) == "1.01e-05");
  CHECK(rounded_up(0) == "0");
  CHECK(rounded_down(0) == "0");
  CHECK(rounded_up(infinity) == "∞");
  CHECK(rounded_down(infinity) == "∞");
  CHECK(rounded_up(std::numeric_limits<double>::max()) == "∞");
  CHECK(rounded_down(std::numeric_limits<double>::max()) == "1.797e+308");
  CHECK_THROWS_AS(rounded_up(-1), std::invalid_argument);
  CHECK_THROWS_AS(rounded_down(std::nan("")), std::invalid_argument);
}

TEST_CASE("no less privacy is printed than was spent") {
  CHECK(epsilon_text(2.37901) == "2.38");
  CHECK(epsilon_text(infinity) == "∞");
  CHECK(epsilon_text(std::nextafter(3.0, 4.0)) == "3.001");
  CHECK(epsilon_text(std::nextafter(3.0, 0.0)) == "3");
  CHECK(delta_text(1e-5) == "1e-05");
  CHECK(delta_text(std::nextafter(1e-5, 1.0)) == "1.00001e-05");
  CHECK(noise_text(1.1) == "1.1");
  CHECK(noise_text(std::nextafter(1.1, 0.0)) == "1.09999");
}

TEST_CASE(
    "a printed bound reads back on its side of the value, within one unit of the last digit") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-300, 300), mantissa(1, 10);
  for (int k = 0; k < 20'000; ++k) {
    const double value = mantissa(random) * std::pow(10, exponent(random));
    for (const int digits : {1, 4, 9}) {
      const double above = std::stod(rounded_up(value, digits));
      const double below = std::stod(rounded_down(value, digits));
      CAPTURE(value, digits);
      REQUIRE(above >= value);
      REQUIRE(below <= value);
      REQUIRE(above - below <= value * 1.01 * std::pow(10, 1 - digits));
    }
  }
}

TEST_CASE("a phase says what it changes, and the rest is as for all") {
  const PhaseOptions all{.noise_multiplier = 1, .sampling_rate = 0.01, .steps = 10};
  const Phase phase =
      make_phase(parse_phase("noise-multiplier=2,batch-size=3,dataset-size=30", all));
  CHECK(phase.event == Event{2, Sampling::poisson, 0.1});
  CHECK(phase.steps == 10);
  CHECK(make_phase(parse_phase("epochs=2.5", all)).steps == 250);
  for (const char* text : {"", "steps", "steps=", "steps=1.5", "steps=1x", "step=1", "epochs=ten",
                           "steps=3,steps=1", "steps=99999999999999999999"}) {
    CAPTURE(text);
    CHECK(throws([&] { parse_phase(text, all); }, std::string("--phase ") + text));
  }
}

TEST_CASE("what is said for all phases holds for one of them at least") {
  const PhaseOptions all{.noise_multiplier = 1, .sampling_rate = 0.01, .steps = 10};
  const auto phases = parse_phases({"steps=5", "noise-multiplier=2"}, all);
  REQUIRE(phases.size() == 2);
  CHECK(make_phase(phases[0]).steps == 5);
  CHECK(make_phase(phases[1]).steps == 10);
  CHECK(throws([&] { parse_phases({"steps=5"}, all); }, "--steps has no effect"));
  CHECK(throws([&] { parse_phases({"steps=10", "epochs=1"}, all); }, "--steps has no effect"));
  CHECK(throws([&] { make_phase(parse_phase("steps=5,epochs=1", all)); }, "--steps and --epochs"));
}

TEST_CASE("epochs and batches become whole steps, rounded up") {
  PhaseOptions options{.noise_multiplier = 1, .batch = 256, .epochs = 60, .population = 60'000};
  CHECK(make_phase(options).steps == 14'063);
  options.sampling = "partition";
  CHECK(make_phase(options).event.batches == 235);
  CHECK(make_phase(options).steps == 60 * 235);
  options = {.noise_multiplier = 1, .batch = 0.1, .epochs = 3, .population = 1};
  CHECK(make_phase(options).steps == 30);
  options.sampling = "cyclic_poisson";
  options.batches = 4;
  CHECK(make_phase(options).event == Event{1, Sampling::cyclic_poisson, 0.4, 4});
  CHECK(make_phase(options).steps == 30);
}

TEST_CASE("every sampling has a name and a phase") {
  CHECK(sampling_names().size() == 8);
  for (const std::string& name : sampling_names()) {
    PhaseOptions options{.noise_multiplier = 1, .steps = 5, .sampling = name};
    if (has_rate(parse_sampling("--sampling", name))) options.sampling_rate = 0.5;
    if (in_epochs(parse_sampling("--sampling", name))) options.batches = 2;
    if (name == "truncated_poisson") options.truncation_probability = 1e-9;
    CAPTURE(name);
    const Phase phase = make_phase(options);
    CHECK(sotto::name(phase.event.sampling) == name);
    CHECK_NOTHROW(check_event("test", phase.event));
  }
  CHECK(throws([] { parse_sampling("--sampling", "sometimes"); }, "--sampling: sometimes"));
}

TEST_CASE("progress shows after a second, ten times a second, and goes away") {
  double now = 100;
  std::string text;
  Progress progress([&](const std::string& part) { text += part; }, [&] { return now; });
  progress.begin("curves", 40);
  progress.advance();
  now += 0.9;
  progress.advance();
  progress.clear();
  CHECK(text.empty());
  now += 0.2;
  progress.advance();
  CHECK(text == "\r\x1b[Kcurves: 3 of 40");
  now += 0.05;
  progress.advance();
  CHECK(occurrences(text, "curves") == 1);
  now += 0.06;
  progress.advance();
  CHECK(occurrences(text, "curves") == 2);
  progress.clear();
  CHECK(text.ends_with("5 of 40\r\x1b[K"));
}

TEST_CASE("curves have a point and a title for every finite value, and a legend when several") {
  CurveChart chart{.name = "a <b>",
                   .x_name = "steps",
                   .curves = {{.name = "one", .x = {1, 2, 3}, .y = {1, infinity, 3}}}};
  std::string svg = curve_chart(chart);
  CHECK(occurrences(svg, "<circle") == 2);
  CHECK(occurrences(svg, "<title>one, 3: 3</title>") == 1);
  CHECK(occurrences(svg, "legend") == 0);
  CHECK(occurrences(svg, "a &lt;b&gt;") == 1);
  CHECK(occurrences(svg, "inf") == 0);
  chart.curves.push_back({.name = "two", .x = {1, 10}, .y = {0, 5}, .colour = 9, .dash = 1});
  chart.log_x = chart.log_y = true;
  svg = curve_chart(chart);
  CHECK(occurrences(svg, "<circle") == 3);  // no logarithm of 0
  CHECK(occurrences(svg, "class=\"line-1 dash-1\"") == 2);
  CHECK(occurrences(svg, "legend") == 1);
  CHECK(occurrences(svg, "nan") == 0);
  chart.mark = 5;
  CHECK(occurrences(curve_chart(chart), "class=\"bound\"") == 1);
  chart.mark = 50;
  CHECK(occurrences(curve_chart(chart), "class=\"bound\"") == 0);
  chart.curves = {{.x = {1}, .y = {infinity}}};
  CHECK(curve_chart(chart) == "<p class=\"empty\">Nothing was recorded.</p>\n");
  chart.curves = {{.x = {1}, .y = {}}};
  CHECK_THROWS_AS(curve_chart(chart), std::invalid_argument);
}

TEST_CASE("tables stand in columns, also where letters have several bytes") {
  const Answer answer{.title = "t",
                      .alarms = {"why"},
                      .facts = {{"a", "1"}, {"long", "2"}},
                      .tables = {{.caption = "c",
                                  .named = true,
                                  .head = {"x", "value"},
                                  .rows = {{"poisson", "∞"}, {"ε", "12"}}}},
                      .notes = {"n"}};
  CHECK(to_text(answer) ==
        "NOT PRIVATE: why\na     1\nlong  2\n\nc\n  x        value\n  poisson      ∞\n"
        "  ε           12\n\nnote: n\n");
}

TEST_CASE("text from outside is escaped on the page") {
  const std::string evil = "</title><script>'\"&";
  const Answer answer{.title = evil,
                      .alarms = {evil},
                      .facts = {{evil, evil}},
                      .tables = {{.caption = evil, .head = {evil}, .rows = {{evil}}}},
                      .notes = {evil}};
  const std::string html = to_html(answer);
  CHECK(occurrences(html, "<script") == 0);
  CHECK(occurrences(html, "&lt;script&gt;") == 9);
}

TEST_CASE("infinity is a word in JSON") {
  CHECK(json_number(infinity).dump() == "\"infinity\"");
  CHECK(json_number(0.1).dump() == "0.1");
}
