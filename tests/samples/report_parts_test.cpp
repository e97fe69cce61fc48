// What reports are made of: charts of norms, and pictures.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "samples/report/charts.h"
#include "samples/report/picture_grid.h"
#include "samples/report/results.h"
#include "samples/training/recorder.h"
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
  CHECK(occurrences(svg, "width=\"200.0\"") == 4);
  CHECK(contains(svg, "x1=\"466.0\" y1=\"12.0\" x2=\"466.0\""));  // the bound, in the middle
  for (const char* mark : {">0.01<", ">0.1<", ">1<", ">10<", ">100<"}) CHECK(contains(svg, mark));
  chart.edges = {1, 2, 4, 6, 8};
  CHECK(contains(histogram_chart(chart), ">5<"));
  chart.edges[0] = 0;
  CHECK_THROWS_AS(histogram_chart(chart), std::invalid_argument);
}

TEST_CASE("norms of many magnitudes spread over the bars of their histogram") {
  ClipStatistics statistics;
  statistics.norms.emplace_back();
  for (int k = 0; k < 1000; ++k) statistics.norms[0].push_back(std::pow(10, 0.006 * k - 2));
  statistics.norms[0].push_back(0);
  samples::Recorder recorder({});
  recorder.add(
      {.loss_sum = 1, .rows = 1001, .units = 1001, .clipping = &statistics, .bounds = {0.1}});
  recorder.close(7);
  const TrainingReport::NormHistogram& norms = recorder.statistics().norms.at(0);
  REQUIRE(norms.edges.size() == norms.counts.size() + 1);
  for (std::size_t k = 0; k < norms.counts.size(); ++k) {
    CHECK(norms.edges[k + 1] / norms.edges[k] == Approx(norms.edges[1] / norms.edges[0]));
    CHECK(norms.counts[k] >= 20);
    CHECK(norms.counts[k] <= 40);
  }
  CHECK(std::accumulate(norms.counts.begin(), norms.counts.end(), std::int64_t{0}) == 1001);
  CHECK(norms.edges.front() < 0.1);
  CHECK(norms.edges.back() > 0.1);
}

TEST_CASE("equal norms, and none but zero, have a histogram around the clip bound") {
  for (const double norm : {0.0, 0.1, 1e-12, 1e12}) {
    ClipStatistics statistics;
    statistics.norms = {std::vector<double>(10, norm)};
    samples::Recorder recorder({});
    recorder.add(
        {.loss_sum = 1, .rows = 10, .units = 10, .clipping = &statistics, .bounds = {0.1}});
    recorder.close(1);
    TrainingReport report;
    report.norms = recorder.statistics().norms;
    CHECK_NOTHROW(to_html(report));
    CHECK(std::accumulate(report.norms[0].counts.begin(), report.norms[0].counts.end(), 0) == 10);
  }
}
