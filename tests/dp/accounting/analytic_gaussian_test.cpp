// File tags: [sanitized]
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/calibration.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

using Json = nlohmann::json;

constexpr double infinity = std::numeric_limits<double>::infinity();

Event sampled(double q, double sigma) {
  return q == 1 ? Event{sigma, Sampling::full_batch, 1} : Event{sigma, Sampling::poisson, q};
}

RdpAccountant composed(double q, double sigma, std::int64_t steps) {
  RdpAccountant accountant;
  accountant.compose(sampled(q, sigma), steps);
  return accountant;
}

// The folder of conformance tables; empty if there is none.
std::filesystem::path tables() {
  const char* shared = std::getenv("SOTTO_SHARED");
  const auto root = shared != nullptr
                        ? std::filesystem::path(shared)
                        : std::filesystem::path(__FILE__).parent_path() / "../../shared";
  const auto folder = root / "conformance" / "accountant";
  return std::filesystem::exists(folder) ? folder : std::filesystem::path();
}

double rdp_answer(const Json& row, const std::vector<double>& orders) {
  if (row["query"] == "sigma") {
    const Event batch{.sampling = Sampling::poisson, .sampling_rate = row["q"]};
    return calibrate_noise_multiplier({row["epsilon"], row["delta"], batch, row["steps"]},
                                      [&] { return std::make_unique<RdpAccountant>(orders); });
  }
  RdpAccountant accountant(orders);
  for (const Json& phase : row["phases"]) {
    accountant.compose(sampled(phase["q"], phase["sigma"]), phase["steps"]);
  }
  return row["query"] == "epsilon" ? accountant.epsilon(row["delta"])
                                   : accountant.delta(row["epsilon"]);
}

double gaussian_answer(const Json& row) {
  if (row["query"] == "sigma") {
    return gaussian_noise_multiplier(row["epsilon"], row["delta"], row["steps"]);
  }
  const Json& phase = row["phases"].at(0);
  return row["query"] == "epsilon" ? gaussian_epsilon(phase["sigma"], row["delta"], phase["steps"])
                                   : gaussian_delta(phase["sigma"], row["epsilon"], phase["steps"]);
}

// Returns the number of table rows compared.
int compare(const std::filesystem::path& file) {
  const Json table = Json::parse(std::ifstream(file));
  int rows = 0;
  for (const Json& row : table["rows"]) {
    const bool rdp = row["accountant"] == "rdp";
    if (!rdp && row["accountant"] != "gaussian") continue;
    const double value = rdp ? rdp_answer(row, table["orders"][row["orders"].get<std::string>()])
                             : gaussian_answer(row);
    INFO(row["id"] << ": " << value << " is not in " << row["accept"]);
    CHECK((value >= row["accept"][0] && value <= row["accept"][1]));
    if (row.contains("exact")) CHECK(value == Approx(row["exact"].get<double>()).epsilon(2e-8));
    ++rows;
  }
  return rows;
}

struct Published {
  double q, sigma;
  std::int64_t steps;
  double delta, epsilon, lower;
};

}  // namespace

TEST_CASE("the accountants agree with the conformance tables") {
  const auto folder = tables();
  if (folder.empty()) {
    WARN("skipped: no conformance tables (set SOTTO_SHARED)");
    return;
  }
  for (const char* table : {"rdp_opacus", "rdp_google", "gaussian", "calibration"}) {
    CHECK(compare(folder / (std::string(table) + ".json")) > 0);
  }
}

// Published values with the orders 1.1 .. 10.9, 11 .. 63, 128 .. 1024, which the default list
// refines; `lower` is a proven lower bound on the true epsilon.
TEST_CASE("epsilon is at most the published one and at least the truth") {
  const std::vector<Published> table = {{256.0 / 60000, 1.1, 14040, 1e-5, 2.594363, 2.36941},
                                        {256.0 / 60000, 0.7, 10530, 1e-5, 6.314928, 5.62475},
                                        {256.0 / 29305, 0.55, 2052, 1e-5, 13.496160, 11.77368},
                                        {512.0 / 25000, 0.56, 1200, 1e-5, 21.725959, 19.26942},
                                        {16384.0 / 1281167, 2.5, 71589, 8e-7, 7.927265, 7.42985},
                                        {16384.0 / 50000, 21.1, 250, 1e-5, 0.997587, 0.90206},
                                        {0.01, 1.1, 1000, 1e-5, 1.711770, 1.50526},
                                        {0.001, 0.6, 10000, 1e-6, 3.999186, 3.14189},
                                        {0.5, 5, 100, 1e-5, 4.866436, 4.47760},
                                        {1, 4, 16, 1e-5, 4.728507, 4.377178},
                                        {0.001, 1, 100000, 1e-7, 2.213372, 2.05408},
                                        {0.01, 4, 10000, 1e-9, 1.505524, 1.41886}};
  for (const Published& row : table) {
    CAPTURE(row.q, row.sigma, row.steps);
    const double epsilon = composed(row.q, row.sigma, row.steps).epsilon(row.delta);
    CHECK(epsilon <= row.epsilon + 1e-6);
    CHECK(epsilon >= row.epsilon * 0.99);
    CHECK(epsilon > row.lower);
  }
}

TEST_CASE("an empty history spends nothing") {
  RdpAccountant accountant;
  accountant.compose(sampled(0.1, 1), 0);
  accountant.compose(sampled(0, 1), 1000);
  CHECK(accountant.epsilon(1e-5) == 0);
  CHECK(accountant.epsilon(1e-150) == 0);
  CHECK(accountant.delta(0) == 0);
  CHECK_FALSE(accountant.order_at_edge(1e-5));
}

TEST_CASE("no noise proves nothing") {
  const RdpAccountant accountant = composed(0.1, 0, 1);
  CHECK(accountant.epsilon(1e-5) == infinity);
  CHECK(accountant.delta(3) == 1);
}

TEST_CASE("epsilon grows with steps and rate, falls with noise, and is never negative") {
  for (const double q : {1e-5, 0.01, 0.3, 1.0}) {
    for (const double sigma : {0.3, 1.0, 5.0, 200.0}) {
      const RdpAccountant here = composed(q, sigma, 100), more_steps = composed(q, sigma, 101);
      const RdpAccountant rarer = composed(q / 2, sigma, 100);
      const RdpAccountant noisier = composed(q, sigma * 1.1, 100);
      for (const double delta : {0.1, 1e-5, 1e-12}) {
        CAPTURE(q, sigma, delta);
        const double epsilon = here.epsilon(delta);
        CHECK(epsilon >= 0);
        CHECK(more_steps.epsilon(delta) >= epsilon);
        CHECK(rarer.epsilon(delta) <= epsilon);
        CHECK(noisier.epsilon(delta) <= epsilon);
      }
      CHECK(here.delta(1) <= more_steps.delta(1));
      CHECK(here.delta(2) <= here.delta(1));
    }
  }
}

TEST_CASE("for the full batch epsilon is above the exact one, and not by much") {
  for (const double sigma : {0.3, 0.5, 1.0, 2.0, 10.0, 300.0}) {
    for (const double delta : {1e-3, 1e-5, 1e-10}) {
      CAPTURE(sigma, delta);
      const double exact = gaussian_epsilon(sigma, delta, 3);
      const double epsilon = composed(1, sigma, 3).epsilon(delta);
      CHECK(epsilon >= exact);
      CHECK(epsilon <= 1.2 * exact + 0.002);
      CHECK(composed(1, sigma, 3).delta(exact) >= delta * (1 - 1e-10));
    }
  }
}

TEST_CASE("composing step by step and in any order is the same") {
  RdpAccountant steps, phases, reversed;
  for (int i = 0; i < 300; ++i) steps.compose(sampled(0.02, 1.2));
  for (int i = 0; i < 5; ++i) steps.compose(sampled(1, 10));
  phases.compose(sampled(0.02, 1.2), 300);
  phases.compose(sampled(1, 10), 5);
  reversed.compose(sampled(1, 10), 5);
  reversed.compose(sampled(0.02, 1.2), 300);
  CHECK(steps.epsilon(1e-5) == Approx(phases.epsilon(1e-5)).epsilon(1e-13));
  CHECK(reversed.epsilon(1e-5) == Approx(phases.epsilon(1e-5)).epsilon(1e-15));
  CHECK(phases.epsilon(1e-5) > composed(0.02, 1.2, 300).epsilon(1e-5));
}

// (order - 1) rdp(order) is convex: the accountant evaluates few orders and misses none.
TEST_CASE("epsilon and delta are the smallest that any order proves", "[gate]") {
  const std::vector<double>& orders = default_orders();
  for (const double q : {1e-9, 1e-3, 0.2, 1.0}) {
    for (const double sigma : {0.006, 0.4, 2.0, 900.0}) {
      RdpAccountant accountant;
      std::vector<double> sum(orders.size());
      for (int kind = 0; kind < 3; ++kind) {
        const double count = std::pow(100, kind), noise = sigma * (1 + kind);
        accountant.compose(sampled(q, noise), static_cast<std::int64_t>(count));
        const std::vector<double> curve = rdp_curve(q, noise, orders);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += count * curve[i];
      }
      for (const double delta : {0.3, 1e-5, 1e-15}) {
        CAPTURE(q, sigma, delta);
        const RdpBound best = rdp_epsilon(orders, sum, delta);
        CHECK(accountant.epsilon(delta) == Approx(best.value).epsilon(1e-13));
        const double back = best.value / 2;
        CHECK(accountant.delta(back) == Approx(rdp_delta(orders, sum, back).value).epsilon(1e-10));
      }
    }
  }
}

TEST_CASE("orders may come in any order, and twice") {
  RdpAccountant one({8, 2, 3, 8}), other({2, 3, 8});
  one.compose(sampled(0.02, 1.2), 300);
  other.compose(sampled(0.02, 1.2), 300);
  CHECK(one.epsilon(1e-5) == other.epsilon(1e-5));
}

TEST_CASE("epsilon and delta invert each other") {
  const RdpAccountant accountant = composed(0.01, 1, 1000);
  for (const double delta : {1e-3, 1e-5, 1e-9}) {
    CHECK(accountant.delta(accountant.epsilon(delta)) == Approx(delta).epsilon(1e-10));
  }
}

TEST_CASE("the default orders suffice for epsilon from 0.01 to 50") {
  for (const double sigma : {0.16, 0.5, 2.0, 30.0, 600.0}) {
    CAPTURE(sigma);
    const RdpAccountant accountant = composed(1, sigma, 1);
    CHECK_FALSE(accountant.order_at_edge(1e-5));
    double best = infinity;  // over orders 200 times as dense
    for (double b = 0.01; b < 10000; b *= 1.0002) {
      const std::vector<double> order = {1 + b}, rdp = {(1 + b) / (2 * sigma * sigma)};
      best = std::min(best, rdp_epsilon(order, rdp, 1e-5).value);
    }
    CHECK(accountant.epsilon(1e-5) >= best * (1 - 1e-6));
    CHECK(accountant.epsilon(1e-5) <= best * 1.001);
  }
  CHECK(RdpAccountant({2.0, 3.0}).order_at_edge(1e-5) == false);
  RdpAccountant few({2.0, 3.0});
  few.compose(sampled(0.01, 1), 10);
  CHECK(few.order_at_edge(1e-5));
}

TEST_CASE("events, counts, orders and deltas out of range are errors") {
  RdpAccountant accountant;
  const double nan = std::nan("");
  CHECK_THROWS_AS(accountant.compose({nan, Sampling::poisson, 0.1}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({-1, Sampling::poisson, 0.1}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({infinity, Sampling::poisson, 0.1}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({1, Sampling::poisson, nan}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({1, Sampling::poisson, 1.5}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({1, Sampling::full_batch, 0.5}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({1, Sampling::poisson, 0.5}, -1), std::invalid_argument);
  for (const double delta : {0.0, 1.0, -1.0, nan}) {
    CHECK_THROWS_AS(accountant.epsilon(delta), std::invalid_argument);
  }
  for (const double epsilon : {-1.0, nan, infinity}) {
    CHECK_THROWS_AS(accountant.delta(epsilon), std::invalid_argument);
  }
  CHECK_THROWS_AS(RdpAccountant(std::vector<double>{}), std::invalid_argument);
  CHECK_THROWS_AS(RdpAccountant({0.5}), std::invalid_argument);
}

TEST_CASE("an event reads back from its text to the same bits") {
  for (const double sigma : {0.0, 0.1, 1.0 / 3, 1e-300, 123456.789}) {
    for (const double q : {0.0, 1e-17, 256.0 / 60000, 1.0}) {
      const Event event{sigma, Sampling::poisson, q};
      CHECK(event_from_json(to_json(event)) == event);
    }
  }
  CHECK(event_from_json(to_json(Event{2})) == Event{2, Sampling::full_batch, 1});
  CHECK(
      to_json(Event{1.1, Sampling::poisson, 0.01}) ==
      R"({"mechanism":"gaussian","noise_multiplier":1.1,"sampling":"poisson","sampling_rate":0.01})");
  for (const Event& event :
       {Event{1, Sampling::truncated_poisson, 0.1, 1, false, 1e-12},
        Event{1, Sampling::fixed_size, 0.25}, Event{1, Sampling::partition, 1, 8, true},
        Event{1, Sampling::balls_and_bins, 1, 8}, Event{1, Sampling::cyclic_poisson, 0.1, 3, true},
        Event{1, Sampling::planned, 1, 1000}}) {
    CHECK(event_from_json(to_json(event)) == event);
  }
}

TEST_CASE("numbers that a sampling does not have are refused") {
  for (const Event& event :
       {Event{1, Sampling::poisson, 0.1, 2}, Event{1, Sampling::poisson, 0.1, 1, true},
        Event{1, Sampling::poisson, 0.1, 1, false, 0.5}, Event{1, Sampling::partition, 0.5, 2},
        Event{1, Sampling::partition, 1, 1, true}, Event{1, Sampling::balls_and_bins, 1, 0},
        Event{1, Sampling::truncated_poisson, 0.1, 1, false, 1.5}}) {
    CHECK_THROWS_AS(check_event("test", event), std::invalid_argument);
  }
}

TEST_CASE("a text that is no event is an error") {
  const std::string good = to_json(Event{1.1, Sampling::poisson, 0.01});
  const std::vector<std::pair<std::string, std::string>> edits = {
      {"gaussian", "laplace"},   {"poisson", "shuffle"},
      {"1.1", "-1.1"},           {"1.1", "\"1.1\""},
      {"1.1", "null"},           {"0.01", "1.01"},
      {"poisson", "full_batch"}, {"sampling_rate", "rate"},
      {"}", ",\"more\":1}"},     {"}", ""},
      {"1.1", "1e999"}};
  for (const auto& [from, to] : edits) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    CAPTURE(text);
    CHECK_THROWS_AS(event_from_json(text), std::invalid_argument);
  }
}
