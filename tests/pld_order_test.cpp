// Epsilon by loss distributions over the whole range of its arguments: numbers, in order, monotone.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "pld_cases.h"
#include "sotto/dp/rdp_accountant.h"

using namespace sotto;

TEST_CASE("no step or record is free: epsilon grows with steps and rate and falls with noise") {
  constexpr double tight = 5e-4;
  for (const double q : {1e-4, 0.02, 0.4}) {
    for (const double sigma : {0.4, 1.0, 20.0}) {
      for (const std::int64_t steps : {1, 50, 10000}) {
        CAPTURE(q, sigma, steps);
        const double epsilon = composed(q, sigma, steps).epsilon(1e-6) * (1 + tight);
        CHECK(composed(q, sigma, 2 * steps).epsilon(1e-6) * (1 + tight) >= epsilon / (1 + tight));
        CHECK(composed(q / 2, sigma, steps).epsilon(1e-6) <= epsilon);
        CHECK(composed(q, sigma * 1.2, steps).epsilon(1e-6) <= epsilon);
        CHECK(composed(q, sigma, steps).epsilon(1e-5) <= epsilon);
        CHECK(composed(q, sigma, steps, Relation::replace_one).epsilon(1e-6) * (1 + tight) >=
              epsilon / (1 + tight));
      }
    }
  }
}

TEST_CASE("bounds are numbers, in order and not above Renyi's, over the whole range") {
  for (const double q : {1e-9, 1e-3, 1 - 1e-9}) {
    for (const double sigma : {0.1, 1.0, 1000.0}) {
      for (const std::int64_t steps : {std::int64_t{1}, std::int64_t{10000}}) {
        const PldAccountant accountant = composed(q, sigma, steps);
        RdpAccountant rdp;
        rdp.compose({sigma, Sampling::poisson, q}, steps);
        for (const double delta : {0.1, 1e-15}) {
          CAPTURE(q, sigma, steps, delta);
          const double upper = accountant.epsilon(delta);
          if (delta < 0.1) {  // the harder one
            const double lower = accountant.epsilon(delta, Bound::lower);
            CHECK(lower >= 0);
            CHECK(lower <= upper);
            // What is out of order is less than the gap.
            CHECK(composed(q, sigma / 1.00001, steps).epsilon(delta) >= lower);
          }
          CHECK(upper <= rdp.epsilon(delta) * 1.001);
        }
      }
    }
  }
}

// Close neighbours, where an answer by another plan would show, and far ones.
TEST_CASE("epsilon moves the wrong way with no argument, however small the change") {
  struct Case {
    double q, sigma;
    std::int64_t steps;
    double delta;
  };
  const std::vector<Case> cases = {{0.00231, 1.07, 383, 4.3e-6},
                                   {0.0042, 0.9, 10000, 1e-5},
                                   {0.1, 3, 40, 1e-9},
                                   {1e-6, 20, 2000, 1e-12}};
  for (const auto& [q, sigma, steps, delta] : cases) {
    CAPTURE(q, sigma, steps, delta);
    std::vector<double> by_rate, by_noise, by_steps, by_delta;
    for (const double change : {0.0, 1e-15, 1e-8, 1e-6, 1e-5, 3e-5, 4e-5, 5e-5, 1e-4, 1e-3, 0.3}) {
      const double more = 1 + change;
      by_rate.push_back(composed(q * more, sigma, steps).epsilon(delta));
      by_noise.push_back(composed(q, sigma / more, steps).epsilon(delta));
      by_delta.push_back(composed(q, sigma, steps).epsilon(delta / more));
    }
    for (const std::int64_t more : {0, 1, 2, 10, 100}) {
      by_steps.push_back(composed(q, sigma, steps + more).epsilon(delta));
    }
    CHECK(std::ranges::is_sorted(by_rate));
    CHECK(std::ranges::is_sorted(by_noise));
    CHECK(std::ranges::is_sorted(by_delta));
    CHECK(std::ranges::is_sorted(by_steps));
  }
}

TEST_CASE("a hundred million steps and arguments out of range are answered") {
  CHECK(composed(0.001, 4, 100000000).epsilon(1e-6) == Approx(14.74).epsilon(2e-3));
  for (const double sigma : {1e-100, 0.01, 1e12}) {
    const PldAccountant accountant = composed(0.1, sigma, 3);
    CAPTURE(sigma);
    CHECK(accountant.epsilon(1e-5) >= accountant.epsilon(1e-5, Bound::lower));
    const double upper = accountant.delta(1);
    CHECK(upper >= accountant.delta(1, Bound::lower));
    CHECK(upper <= 1);
  }
  CHECK(composed(1e-300, 1, 5).epsilon(1e-5) == 0);
  CHECK(composed(0.1, 1, 5).delta(1e6) < 1e-100);
  CHECK(composed(0.1, 1, 5).epsilon(0.999) == 0);
}
