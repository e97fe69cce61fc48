#include "samples/report/report.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "samples/report/charts.h"

using namespace sotto;

namespace {

// The element names of a well-formed page, in the order they open. Fails the test if tags do not
// nest, attributes are not quoted, or the text contains a bare & or <.
class Page {
 public:
  explicit Page(const std::string& html) : html_(html) {
    const std::string prolog = "<!DOCTYPE html>\n";
    REQUIRE(html_.rfind(prolog, 0) == 0);
    at_ = prolog.size();
    while (at_ < html_.size()) next();
    CHECK(open_.empty());
  }

  std::size_t count(const std::string& name) const {
    return static_cast<std::size_t>(std::count(names_.begin(), names_.end(), name));
  }

 private:
  char peek() const { return at_ < html_.size() ? html_[at_] : '\0'; }

  void next() {
    if (peek() == '&') return entity();
    if (peek() != '<') {
      ++at_;
      return;
    }
    ++at_;
    if (peek() == '/') return close();
    element();
  }

  void entity() {
    const std::size_t end = html_.find(';', at_);
    REQUIRE((end != std::string::npos && end - at_ <= 5));
    at_ = end + 1;
  }

  std::string word() {
    const std::size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '-') ++at_;
    REQUIRE(at_ > begin);
    return html_.substr(begin, at_ - begin);
  }

  void expect(char c) {
    REQUIRE(peek() == c);
    ++at_;
  }

  void close() {
    ++at_;
    REQUIRE_FALSE(open_.empty());
    REQUIRE(word() == open_.back());
    open_.pop_back();
    expect('>');
  }

  void element() {
    const std::string name = word();
    names_.push_back(name);
    while (peek() == ' ' || peek() == '\n') {
      ++at_;
      if (std::isalpha(static_cast<unsigned char>(peek()))) attribute();
    }
    if (peek() == '/') {
      ++at_;
      return expect('>');
    }
    expect('>');
    open_.push_back(name);
  }

  void attribute() {
    word();
    expect('=');
    expect('"');
    while (peek() != '"') {
      REQUIRE((peek() != '<' && peek() != '\0'));
      if (peek() == '&')
        entity();
      else
        ++at_;
    }
    ++at_;
  }

  const std::string& html_;
  std::size_t at_ = 0;
  std::vector<std::string> open_;
  std::vector<std::string> names_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TrainingReport full_report() {
  TrainingReport report;
  report.title = "Digits";
  for (int step = 0; step <= 50; ++step) {
    report.points.push_back(
        {.step = 10 * step,
         .loss = 2.0 / (1 + step),
         .measure = step % 10 == 0 ? 0.5 + 0.009 * step : TrainingReport::unmeasured,
         .epsilon = 0.05 * step,
         .clipped_fraction = 0.5});
  }
  report.norms = {{.step = 500,
                   .edges = {0, 1, 2, 3},
                   .counts = {5, 1234, 2},
                   .clip_bound = 1.5,
                   .clipped_fraction = 0.25}};
  report.phases = {{"forward", 2.5, 3u << 20}, {"backward", 7.5, 12u << 20}};
  report.settings = {{"learning rate", "0.1"}};
  report.privacy = PrivacyStatement{.epsilon = 2.5,
                                    .delta = 1e-5,
                                    .releases = 500,
                                    .unit = "one sample",
                                    .relation = "adding or removing one sample",
                                    .sampling = "Poisson, rate 0.01",
                                    .clipping = "as a whole, to 1",
                                    .mechanism = "Gaussian",
                                    .accountant = "Rényi",
                                    .not_private = {},
                                    .covered = {"the parameters"},
                                    .not_covered = {"the choice of settings"},
                                    .notes = {}};
  report.test_measure = 0.95;
  report.epochs = 5;
  report.seconds = 83;
  report.provenance = {.time = "2026-11-27 19:20 UTC",
                       .sotto = "0.1.0, commit 25383b9fd0",
                       .machine = "a CPU, 4 cores",
                       .command = "sotto-mnist --save 'my model'"};
  return report;
}

constexpr const char* badge = "class=\"badge\"";

}  // namespace

TEST_CASE("a full page is well-formed and needs nothing else") {
  const std::string html = to_html(full_report());
  const Page page(html);
  CHECK(page.count("svg") == 6);
  CHECK(page.count("script") == 0);
  CHECK(page.count("link") == 0);
  CHECK(page.count("img") == 0);
  CHECK_FALSE(contains(html, "http"));
  CHECK_FALSE(contains(html, "url("));
  CHECK(contains(html, "prefers-color-scheme: dark"));
}

TEST_CASE("the headline and the statement carry the values") {
  const std::string html = to_html(full_report());
  for (const char* text :
       {"95 %", "ε = 2.5", "δ = 10⁻⁵", "1 min 23 s", "500 steps", "Poisson, rate 0.01",
        "adding or removing one sample", "the choice of settings", "12 MiB", "75.0 %", "1,234",
        "clip bound C = 1.5", "step 500: accuracy 95 %", "<h1>Digits, trained privately</h1>",
        "2026-11-27 19:20 UTC", "0.1.0, commit 25383b9fd0", "a CPU, 4 cores",
        "sotto-mnist --save &#39;my model&#39;"}) {
    CAPTURE(text);
    CHECK(contains(html, text));
  }
  CHECK_FALSE(contains(html, "No privacy"));
}

TEST_CASE("epsilon and delta are rounded up on the page") {
  TrainingReport report = full_report();
  report.points = {{.step = 1, .epsilon = 0.05}, {.step = 2, .epsilon = 0.65}};
  CHECK_FALSE(contains(to_html(report), "001<"));  // nor ticks of 0.6000000000000001
  report.points = {{.step = 1, .epsilon = 0}};
  CHECK_NOTHROW(to_html(report));  // whose axis begins below 0
  report = full_report();
  report.privacy->epsilon = 2.50001;
  report.privacy->delta = 1.0000001e-5;
  report.points.back().epsilon = 2.50001;
  const std::string html = to_html(report);
  CHECK(occurrences(html, "2.501") == 4);  // the card, the statement, the curve and its end
  CHECK(occurrences(html, "1.00001 · 10⁻⁵") == 2);
  CHECK_FALSE(contains(html, "δ = 10⁻⁵"));
}

TEST_CASE("every number that is not private carries a badge and is listed") {
  TrainingReport report = full_report();
  // The time, the loss, the clipped fraction, the norms, and the phases.
  CHECK(occurrences(to_html(report), badge) == 5);
  CHECK(not_private_numbers(report).size() == 4);
  report.measured_on_private_data = true;
  report.not_private = {"the number of samples"};
  const std::string html = to_html(report);
  CHECK(occurrences(html, badge) == 7);
  CHECK(not_private_numbers(report).size() == 7);
  CHECK(contains(html, "<li>the number of samples</li>"));
  CHECK(contains(html, "<li>Test accuracy: it is measured on private data</li>"));
  CHECK(contains(html, "<li>The number of samples that it is measured on, where a unit"));
}

TEST_CASE("a run without privacy says so and shows no epsilon") {
  TrainingReport report = full_report();
  report.privacy.reset();
  report.no_privacy_reason = "Seeded noise.";
  const std::string html = to_html(report);
  const Page page(html);
  CHECK(contains(html, "<strong>No privacy.</strong>"));
  CHECK(contains(html, "Seeded noise."));
  CHECK(contains(html, "No privacy is claimed"));
  CHECK_FALSE(contains(html, "ε ="));
  CHECK_FALSE(contains(html, "epsilon"));
  CHECK(occurrences(html, badge) == 7);
}

TEST_CASE("text from outside is escaped wherever it stands") {
  const std::string evil = "</title><script a=\"b\">'&\x01";
  TrainingReport report = full_report();
  report.title = evil;
  report.settings = {{evil, evil}};
  report.phases = {{evil, 1, 1}};
  report.not_private = {evil};
  report.provenance = {evil, evil, evil, evil};
  report.privacy =
      PrivacyStatement{1, 0, 1, evil, evil, evil, evil, evil, evil, {}, {evil}, {evil}, {evil}};
  report.privacy->composition = evil;
  report.privacy->assumed = {evil};
  const std::string html = to_html(report);
  CHECK(Page(html).count("script") == 0);
  CHECK(occurrences(html, escape(evil)) == 23);
  CHECK_FALSE(contains(html, "\x01"));
  report.privacy->not_private = {evil};
  CHECK(Page(to_html(report)).count("script") == 0);
  CHECK(contains(to_html(report), "No privacy is claimed, because of"));
  report.privacy.reset();
  report.no_privacy_reason = evil;
  CHECK(Page(to_html(report)).count("script") == 0);
}

TEST_CASE("markup characters become entities, and control characters do not pass") {
  CHECK(escape("<a b=\"c\">'&\t\x01") == "&lt;a b=&quot;c&quot;&gt;&#39;&amp;\t\xef\xbf\xbd");
  CHECK(escape("ε < ∞") == "ε &lt; ∞");
}

TEST_CASE("an empty report is a page that says that nothing was recorded") {
  const std::string html = to_html(TrainingReport{});
  CHECK(Page(html).count("svg") == 0);
  CHECK(contains(html, "Nothing was recorded"));
  CHECK_FALSE(contains(html, "nan"));
}

TEST_CASE("values that are not finite never reach the page") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  TrainingReport report = full_report();
  for (auto& point : report.points) point.loss = point.step % 20 == 0 ? inf : -inf;
  report.points[3].epsilon = inf;
  report.seconds = TrainingReport::unmeasured;
  report.test_measure = TrainingReport::unmeasured;
  report.norms[0].clip_bound = TrainingReport::unmeasured;
  report.privacy->epsilon = inf;
  const std::string html = to_html(report);
  const Page page(html);
  CHECK(page.count("svg") == 5);
  CHECK(contains(html, "ε = ∞"));
  CHECK_FALSE(contains(html, "nan"));
  CHECK_FALSE(contains(html, "inf"));
}

TEST_CASE("one point is drawn as a dot inside the chart") {
  TrainingReport report = full_report();
  report.points = {{.step = 7, .loss = 0, .measure = 1, .epsilon = 3, .clipped_fraction = 0}};
  const std::string html = to_html(report);
  CHECK(Page(html).count("circle") == 4);
  CHECK_FALSE(contains(html, "nan"));
  CHECK_FALSE(contains(html, "inf"));
}

TEST_CASE("a page is SECRET, first of all, and says which numbers make it so") {
  TrainingReport report = full_report();
  const std::string html = to_html(report);
  const std::size_t banner = html.find("This page is SECRET.");
  REQUIRE(banner != std::string::npos);
  CHECK(banner < html.find("class=\"card\""));
  CHECK(contains(html, ": training loss; fraction of samples clipped; distribution of per-sample"));
  CHECK(contains(html, "href=\"#not-private\""));
  CHECK(contains(html, "id=\"not-private\""));
  report.privacy->not_private = {"seeded noise"};
  CHECK(contains(to_html(report), "<h1>Digits</h1>"));  // which nobody trained privately
}

TEST_CASE("the accuracy of training without privacy stands beside the private one") {
  TrainingReport report = full_report();
  CHECK_FALSE(contains(to_html(report), "Without privacy"));
  CHECK(to_json(report)["ordinary_accuracy"].is_null());
  report.ordinary_measure = 0.975;
  const std::string html = to_html(report);
  CHECK(contains(html, "Without privacy"));
  CHECK(contains(html, "97.5 %"));
  CHECK(occurrences(html, badge) == 6);
  CHECK(contains(html, "<li>Test accuracy without privacy"));
  CHECK(to_json(report)["ordinary_accuracy"] == 0.975);
}

TEST_CASE("curves begin at step 0") {
  TrainingReport report = full_report();
  report.points = {{.step = 100, .loss = 1}, {.step = 200, .loss = 2}};
  const std::string html = to_html(report);
  CHECK(contains(html, ">0</text>"));
  CHECK(contains(html, "points=\"232.0,"));  // halfway
}

TEST_CASE("an impossible statement or histogram is refused") {
  TrainingReport report = full_report();
  report.privacy->epsilon = TrainingReport::unmeasured;
  CHECK_THROWS_WITH(to_html(report), "report: epsilon nan with delta 1e-05");
  report = full_report();
  report.privacy->delta = 1;
  CHECK_THROWS_AS(to_html(report), std::invalid_argument);
  report = full_report();
  report.norms[0].edges = {0, 1, 1, 2};
  CHECK_THROWS_AS(to_html(report), std::invalid_argument);
  report.norms[0].edges = {0, 1};
  CHECK_THROWS_AS(to_html(report), std::invalid_argument);
}

TEST_CASE("pictures taken for another class are in the page, unless privacy protects them") {
  TrainingReport report = full_report();
  report.wrong_pictures = {
      {.png = "\x89PNG", .label = "<cat>", .predicted = "dog", .probability = 0.5},
      {.png = "x", .label = "ship", .predicted = "dog", .probability = 0.25}};
  const std::string html = to_html(report);
  CHECK(Page(html).count("img") == 2);
  CHECK(contains(html, "src=\"data:image/png;base64,iVBORw==\""));
  CHECK(contains(html, "&lt;cat&gt;, predicted dog (50 %)"));
  CHECK(to_json(report)["wrong_pictures"][1] ==
        nlohmann::json{{"class", "ship"}, {"predicted", "dog"}, {"probability", 0.25}});
  report.measured_on_private_data = true;
  CHECK_THROWS_WITH(to_html(report), "report: pictures of private data");
}

TEST_CASE("the JSON holds the same facts, and null for missing measurements") {
  TrainingReport report = full_report();
  const nlohmann::json json = nlohmann::json::parse(to_json(report).dump());
  CHECK(json["title"] == "Digits");
  CHECK(json["test_accuracy"] == 0.95);
  CHECK(json["privacy"]["epsilon"] == 2.5);
  CHECK(json["privacy"]["releases"] == 500);
  CHECK(json["points"].size() == 51);
  CHECK(json["points"][1]["accuracy"].is_null());
  CHECK(json["points"][50]["step"] == 500);
  CHECK(json["norms"][0]["counts"] == std::vector<int>{5, 1234, 2});
  CHECK(json["phases"][1]["peak_bytes"] == 12 << 20);
  CHECK(json["settings"][0]["value"] == "0.1");
  CHECK(json["provenance"]["command"] == report.provenance.command);
  CHECK(json["not_private"] == not_private_numbers(report));
  report.privacy.reset();
  CHECK(to_json(report)["privacy"].is_null());
}

TEST_CASE("numbers are written for people") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(number(0.00001) == "10⁻⁵");
  CHECK(number(2.5e12) == "2.5 · 10¹²");
  CHECK(number(-0.0) == "0");
  CHECK(number(1.23456) == "1.235");
  CHECK(percent(0.98129) == "98.13 %");
  CHECK(percent(std::numeric_limits<double>::quiet_NaN()) == "–");
}
