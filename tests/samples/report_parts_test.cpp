// What reports are made of: charts of norms, and pictures.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "samples/report/charts.h"
#include "samples/report/confusion_table.h"
#include "samples/report/picture_grid.h"
#include "samples/report/recorder.h"
#include "samples/report/results.h"
#include "samples/report/settings_section.h"
#include "samples/training/settings.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("base64 is that of RFC 4648") {
  const std::string texts[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (std::size_t k = 0; k < std::size(texts); ++k)
    CHECK(base64(std::string("foobar").substr(0, k)) == texts[k]);
  CHECK(base64("\xff\xfe\xfb") == "//77");
}

TEST_CASE("a command line is one that a shell reads as the same words") {
  const std::string words("a\0b c\0it's\0\0--x=1,2\0$(y)", 24);
  CHECK(shell_command(words) == R"(a 'b c' 'it'\''s' '' --x=1,2 '$(y)')");
  CHECK(shell_command("") == "");
  const Provenance here = provenance();
  CHECK(here.time.ends_with(" UTC"));
  CHECK(here.sotto.starts_with("0."));
  CHECK(contains(here.machine, " cores"));
  CHECK_FALSE(here.command.empty());
}

TEST_CASE("a matrix says which side is the truth, and adds up") {
  TrainingReport::Confusion confusion{{"cat", "dog"}, {1000, 200, 30, 4}};
  const std::string html = confusion_table(confusion);
  for (const char* text :
       {"true class", "predicted class", ">1,200</td>", ">34</td>", ">1,030</td>", ">204</td>",
        ">1,234</td>", "var(--c0) 42%", "var(--c1) 9%"}) {
    CAPTURE(text);
    CHECK(contains(html, text));
  }
  confusion.counts.pop_back();
  CHECK_THROWS_WITH(confusion_table(confusion), "report: 3 counts of 2 classes");
}

TEST_CASE("settings stand in groups, without those that are off, and long ones below") {
  const std::string html = settings_section({{"largest batch", "0"},
                                             {"batch", "256.0"},
                                             {"seed", "0"},
                                             {"hidden", "64"},
                                             {"schema", "{\n}"},
                                             {"epsilon", "3"}});
  for (const char* text :
       {"<h3>Privacy</h3>\n<dl class=\"settings\">\n<div><dt>epsilon</dt>", "<h3>Training</h3>",
        "<dt>batch</dt><dd>256</dd>", "<dt>seed</dt><dd>0</dd>", "<h3>Model and data</h3>",
        "<dt>hidden</dt>", "<h3>schema</h3>\n<pre>{\n}</pre>"}) {
    CAPTURE(text);
    CHECK(contains(html, text));
  }
  CHECK_FALSE(contains(html, "largest batch"));
}

TEST_CASE("every setting of a training has a group of its own") {
  std::vector<std::string> general;
  samples::Settings settings;
  samples::visit_settings(settings, [&](const char* name, const auto&, samples::OnResume) {
    general.push_back(group_of(name));
  });
  CHECK(std::count(general.begin(), general.end(), "Model and data") == 3);  // sizes
}

TEST_CASE("the pictures that are shown are those taken for another class most certainly") {
  const std::int64_t n = 60;
  Tensor logits = Tensor::empty({n, 2});
  Dataset pictures{.inputs = Tensor::empty({n, 1, 2, 2}),
                   .targets = Tensor::empty({n}, Dtype::i64)};
  std::fill_n(pictures.inputs.data<float>(), 4 * n, 0.5F);
  for (std::int64_t k = 0; k < n; ++k) {  // right for even k; surer of later ones
    logits.data<float>()[2 * k] = 0;
    logits.data<float>()[2 * k + 1] = 0.1F * static_cast<float>(k + 1);
    pictures.targets.data<std::int64_t>()[k] = k % 2 == 0 ? 1 : 0;
  }
  TrainingReport report;
  samples::describe_wrong_pictures(logits, pictures, {"a", "b"}, report);
  REQUIRE(report.wrong_pictures.size() == 24);
  for (std::size_t k = 0; k < 24; ++k) {
    const auto& wrong = report.wrong_pictures[k];
    CHECK(wrong.label == "a");
    CHECK(wrong.predicted == "b");
    const double logit = 0.1 * (60.0 - 2 * static_cast<double>(k));
    CHECK(wrong.probability == Approx(1 / (1 + std::exp(-logit))));
  }
}

TEST_CASE("a logarithmic axis gives every order of magnitude the same width") {
  HistogramChart chart{
      .edges = {0.01, 0.1, 1, 10, 100}, .counts = {1, 2, 3, 4}, .bound = 1, .logarithmic = true};
  const std::string svg = histogram_chart(chart);
  CHECK(occurrences(svg, "width=\"85.0\"") == 4);
  CHECK(contains(svg, "x1=\"232.0\" y1=\"24.0\" x2=\"232.0\""));  // the bound, in the middle
  for (const char* mark : {">0.01<", ">0.1<", ">1<", ">10<", ">100<"}) CHECK(contains(svg, mark));
  chart.edges = {1, 2, 4, 6, 8};
  CHECK(contains(histogram_chart(chart), ">5<"));
  chart.edges[0] = 0;
  CHECK_THROWS_AS(histogram_chart(chart), std::invalid_argument);
}

TEST_CASE("bars for what lies beyond the edges stand apart and say so") {
  HistogramChart chart{.edges = {1, 2, 3}, .counts = {4, 5}, .bound = 2.5, .bound_name = "bound"};
  CHECK_FALSE(contains(histogram_chart(chart), ">more<"));
  chart.above = 9;
  const std::string svg = histogram_chart(chart);
  CHECK(contains(svg, "<title>above 3: 9</title>"));
  CHECK(contains(svg, ">more<"));
  CHECK_FALSE(contains(svg, ">less<"));
  CHECK(contains(svg, ">10<"));  // the axis reaches the bar
  chart.below = 7;
  CHECK(contains(histogram_chart(chart), "<title>below 1: 7</title>"));
}

TEST_CASE("norms of many magnitudes spread over the bars of their histogram") {
  ClipStatistics statistics{.norms = {{}}, .loss_sum = 1, .rows = 1001, .units = 1001};
  for (int k = 0; k < 1000; ++k) statistics.norms[0].push_back(std::pow(10, 0.006 * k - 2));
  statistics.norms[0].push_back(0);
  samples::Recorder recorder({});
  recorder.add({.statistics = &statistics, .bounds = {0.1}});
  recorder.close(7);
  const TrainingReport::NormHistogram& norms = recorder.statistics().norms.at(0);
  REQUIRE(norms.edges.size() == norms.counts.size() + 1);
  for (std::size_t k = 0; k < norms.counts.size(); ++k) {
    CHECK(norms.edges[k + 1] / norms.edges[k] == Approx(norms.edges[1] / norms.edges[0]));
    CHECK(norms.counts[k] >= 20);
    CHECK(norms.counts[k] <= 40);
  }
  CHECK(norms.steps == 1);
  CHECK(norms.below == 5);  // of 1001, half a percent
  CHECK(norms.above == 5);
  CHECK(std::accumulate(norms.counts.begin(), norms.counts.end(), norms.below + norms.above) ==
        1001);
  CHECK(norms.edges.front() < 0.1);
  CHECK(norms.edges.back() > 0.1);
}

TEST_CASE("equal norms, and none but zero, have a histogram around the clip bound") {
  for (const double norm : {0.0, 0.1, 1e-12, 1e12}) {
    const ClipStatistics statistics{
        .norms = {std::vector<double>(10, norm)}, .loss_sum = 1, .rows = 10, .units = 10};
    samples::Recorder recorder({});
    recorder.add({.statistics = &statistics, .bounds = {0.1}});
    recorder.close(1);
    TrainingReport report;
    report.norms = recorder.statistics().norms;
    CHECK_NOTHROW(to_html(report));
    const auto& norms = report.norms[0];
    CHECK(std::accumulate(norms.counts.begin(), norms.counts.end(), norms.below + norms.above) ==
          10);
  }
}
