// Epsilon by privacy loss distributions over the whole range of its arguments: finite, ordered,
// monotone. SOTTO_PLD_POINTS sets the number of random points.
// File tags: [sanitized]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"
#include "tests/support/pld_cases.h"

using namespace sotto;

namespace {

// Arguments of epsilon.
struct Point {
  double q, sigma;
  std::int64_t steps;
  double delta;

  double epsilon(Bound bound = Bound::upper) const {
    return composed(q, sigma, steps).epsilon(delta, bound);
  }
  std::vector<Point> with_more_loss(double factor) const {
    const auto more = static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * factor));
    return {{std::min(q * factor, 1.0), sigma, steps, delta},
            {q, sigma / factor, steps, delta},
            {q, sigma, more, delta},
            {q, sigma, steps, delta / factor}};
  }
};

// Draws arguments log-uniformly: all magnitudes are equally likely.
class RandomPoints {
 public:
  Point next() {
    return {between(1e-9, 1), between(0.1, 1000), std::llround(between(1, 1e8)),
            between(1e-15, 0.1)};
  }
  double between(double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random_));
  }

 private:
  std::mt19937_64 random_{20};
};

int points_asked() {
  const char* text = std::getenv("SOTTO_PLD_POINTS");
  return text == nullptr ? 8 : std::atoi(text);
}

}  // namespace

// The truth is monotone, so an upper bound with more loss is above every lower bound with less,
// without a tolerance; upper bounds may be out of order by their gap. Among 300 points the gap is 7
// % for one, above 2.5 % for four with epsilons below 4e-4, and mostly a hundredth of that.
TEST_CASE("random points of the whole range have bounds close together and move the right way",
          "[gate][random]") {
  constexpr double max_width = 0.08, negligible = 2e-5, nearby = 1.01, far = 2;
  RandomPoints points;
  for (int i = 0; i < points_asked(); ++i) {
    const Point point = points.next();
    CAPTURE(point.q, point.sigma, point.steps, point.delta);
    const double upper = point.epsilon(), lower = point.epsilon(Bound::lower);
    CHECK(std::isfinite(upper));
    CHECK(lower >= 0);
    CHECK(lower <= upper);
    CHECK(lower >= (1 - max_width) * upper - negligible);
    for (const double factor : {nearby, far}) {
      for (const Point& more : point.with_more_loss(factor)) {
        CAPTURE(more.q, more.sigma, more.steps, more.delta);
        const double epsilon = more.epsilon();
        CHECK(std::isfinite(epsilon));
        CHECK(epsilon >= lower);
      }
    }
  }
}

TEST_CASE("without sampling epsilon is the closed form of the Gaussian mechanism") {
  RandomPoints points;
  for (int i = 0; i < 1000; ++i) {
    Point point = points.next();
    point.q = 1;
    CAPTURE(point.sigma, point.steps, point.delta);
    const double exact = gaussian_epsilon(point.sigma, point.delta, point.steps);
    CHECK(std::abs(point.epsilon() - exact) <= 1e-6 * exact);
  }
}

// Bounds were up to a hundred times apart here: one loss decides, and it is too rare for any tilt.
TEST_CASE("bounds are close together where one release alone may decide", "[nightly]") {
  const std::vector<Point> corner = {
      {1.603e-8, 0.3513, 1, 2.07e-9},      {1.266e-9, 0.3733, 675414, 8.35e-9},
      {2.631e-7, 0.59, 24295, 1.09e-15},   {4.591e-7, 0.4618, 66265, 5.14e-12},
      {5.488e-8, 0.3867, 188, 7.09e-13},   {9.155e-9, 0.2639, 108420, 2.12e-6},
      {4.825e-6, 0.1197, 300798, 1.04e-15}};
  for (const Point& point : corner) {
    CAPTURE(point.q, point.sigma, point.steps, point.delta);
    const double upper = point.epsilon();
    CHECK(point.epsilon(Bound::lower) <= upper);
    CHECK(point.epsilon(Bound::lower) >= 0.99 * upper);
  }
}

TEST_CASE("the bounds of one release contain its closed form where it nearly never matters",
          "[gate]") {
  const auto above = [](double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); };
  for (const double q : {1e-9, 1e-6}) {
    for (const double sigma : {0.3, 0.5, 0.8}) {
      for (const double part : {0.1, 1e-3, 1e-5}) {  // of q, which is nearly delta at epsilon 0
        const PldAccountant accountant = composed(q, sigma, 1);
        const double upper = accountant.epsilon(part * q);
        const double lower = accountant.epsilon(part * q, Bound::lower);
        CAPTURE(q, sigma, part, upper, lower);
        const auto delta = [&](double epsilon) {
          const double x = 0.5 + sigma * sigma * std::log1p(std::expm1(epsilon) / q);
          return q * above((x - 1) / sigma) - (std::expm1(epsilon) + q) * above(x / sigma);
        };
        CHECK(delta(upper) <= part * q * (1 + 1e-9));
        CHECK(delta(lower) >= part * q * (1 - 1e-9));
        CHECK(upper <= 1.02 * lower);
      }
    }
  }
}

// With the lower bound's merged outcomes none may be left below the limit of the large losses.
TEST_CASE("the bounds of a rare release that reveals nearly all contain its closed form") {
  const auto above = [](double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); };
  for (const auto relation :
       {NeighboringRelation::add_or_remove_one, NeighboringRelation::replace_one}) {
    const double other = relation == NeighboringRelation::replace_one ? -1 : 0;
    for (const double q : {1.14e-9, 1e-6}) {
      const double sigma = q < 1e-8 ? 0.055 : 0.03, given = q / 19;
      const PldAccountant accountant = composed(q, sigma, 1, relation);
      const double upper = accountant.epsilon(given),
                   lower = accountant.epsilon(given, Bound::lower);
      CAPTURE(relation, q, sigma, upper, lower);
      const auto log_ratio = [&](double x) {
        return std::log1p(q * std::expm1((x - 0.5) / (sigma * sigma)));
      };
      const auto delta = [&](double epsilon) {
        double low = 0, high = 2;
        for (int step = 0; step < 100; ++step) {
          const double x = (low + high) / 2;
          (log_ratio(x) - (other < 0 ? log_ratio(-x) : 0) < epsilon ? low : high) = x;
        }
        return q * above((high - 1) / sigma) + (1 - q) * above(high / sigma) -
               std::exp(epsilon) *
                   ((1 - q) * above(high / sigma) + q * above((high - other) / sigma));
      };
      CHECK(delta(upper) <= given * (1 + 1e-9));
      CHECK(delta(lower) >= given * (1 - 1e-9));
      CHECK(upper <= 1.02 * lower);
    }
  }
}

TEST_CASE("no step or record is free: epsilon grows with steps and rate and falls with noise",
          "[gate]") {
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
        CHECK(composed(q, sigma, steps, NeighboringRelation::replace_one).epsilon(1e-6) *
                  (1 + tight) >=
              epsilon / (1 + tight));
      }
    }
  }
}

TEST_CASE("bounds are numbers, in order and not above Renyi's, over the whole range", "[nightly]") {
  for (const double q : {1e-9, 1e-3, 1 - 1e-9}) {
    for (const double sigma : {0.1, 1.0, 1000.0}) {
      for (const std::int64_t steps : {std::int64_t{1}, std::int64_t{10000}}) {
        const PldAccountant accountant = composed(q, sigma, steps);
        RdpAccountant rdp;
        rdp.compose({sigma, Sampling::poisson, q}, steps);
        for (const double delta : {0.1, 1e-15}) {
          CAPTURE(q, sigma, steps, delta);
          const double upper = accountant.epsilon(delta);
          if (delta < 0.1) {  // the harder case
            const double lower = accountant.epsilon(delta, Bound::lower);
            CHECK(lower >= 0);
            CHECK(lower <= upper);
            // Bounds may be out of order by less than the gap.
            CHECK(composed(q, sigma / 1.00001, steps).epsilon(delta) >= lower);
          }
          CHECK(upper <= rdp.epsilon(delta) * 1.001);
        }
      }
    }
  }
}

// Close pairs of arguments, where an answer by another plan would show, and distant ones.
TEST_CASE("epsilon moves the wrong way with no argument, however small the change", "[gate]") {
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
