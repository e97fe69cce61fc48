// File tags: [sanitized]
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "dp/accounting/rdp/balls_and_bins.h"
#include "dp/accounting/rdp/rdp.h"
#include "dp/accounting/rdp/replace_one.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

double balls_and_bins(std::int64_t batches, double sigma, double order) {
  return rdp_curve_balls_and_bins(batches, sigma, std::array{order})[0];
}

double replaced(double q, double sigma, double order) {
  return rdp_curve_replaced(q, sigma, std::array{order})[0];
}

// ln E[M^power] of the mean M of two or three lognormal factors, by the trapezoidal rule.
double log_moment_by_quadrature(int terms, double sigma, double power) {
  const double step = 0.25, end = std::abs(power) / sigma + 10;
  std::vector<std::pair<double, double>> points;  // factor, weight
  for (double z = -end; z <= end; z += step) {
    const double weight = step * std::exp(-0.5 * z * z) / std::sqrt(2 * std::acos(-1.0));
    if (weight > 1e-40) points.emplace_back(std::exp(z / sigma - 0.5 / (sigma * sigma)), weight);
  }
  double sum = 0;
  for (const auto& [a, of_a] : points) {
    for (const auto& [b, of_b] : points) {
      if (terms == 2) sum += of_a * of_b * std::pow((a + b) / 2, power);
      for (std::size_t i = 0; terms == 3 && i < points.size(); ++i) {
        sum += of_a * of_b * points[i].second * std::pow((a + b + points[i].first) / 3, power);
      }
    }
  }
  return std::log(sum);
}

}  // namespace

TEST_CASE("an epoch of balls and bins agrees with quadrature in both directions") {
  for (const int batches : {2, 3}) {
    for (const double sigma : {0.8, 2.0}) {
      for (const double order : {2.0, 3.0, 5.0}) {
        CAPTURE(batches, sigma, order);
        const double removed = log_moment_by_quadrature(batches, sigma, order) / (order - 1);
        const double added = log_moment_by_quadrature(batches, sigma, 1 - order) / (order - 1);
        CHECK(removed > added);
        CHECK(balls_and_bins(batches, sigma, order) == Approx(removed).epsilon(3e-9));
        CHECK(rdp_balls_and_bins_added(batches, sigma, order) == Approx(added).epsilon(3e-9));
      }
    }
  }
}

TEST_CASE("between integer orders an epoch of balls and bins has a close upper bound") {
  for (const double order : {1.3, 2.5, 3.7}) {
    const double truth = log_moment_by_quadrature(2, 1, order) / (order - 1);
    CHECK(balls_and_bins(2, 1, order) >= truth);
    CHECK(balls_and_bins(2, 1, order) <= truth * (order < 2 ? 1.8 : 1.1));
  }
}

// E[M^2] and E[M^3] by counting which factors are equal.
TEST_CASE("second and third moments of balls and bins agree with counting") {
  for (const double t : {1.0, 2.0, 7.0, 1000.0, 1048575.0}) {
    for (const double sigma : {0.3, 1.0, 1000.0}) {
      const double precision = 1 / (sigma * sigma);
      const double second = std::expm1(precision) / t;
      const double third =
          (3 * (t - 1) * std::expm1(precision) + std::expm1(3 * precision)) / t / t;
      CAPTURE(t, sigma);
      const auto batches = static_cast<std::int64_t>(t);
      CHECK(balls_and_bins(batches, sigma, 2) == Approx(std::log1p(second)).epsilon(3e-9));
      CHECK(balls_and_bins(batches, sigma, 3) == Approx(std::log1p(third) / 2).epsilon(3e-9));
    }
  }
}

TEST_CASE("one batch is a full batch, in both directions") {
  for (const double sigma : {0.2, 1.0, 30.0, 1000.0}) {
    for (const double order : {1.01, 1.5, 2.0, 16.0, 100.0, 5000.0}) {
      CAPTURE(sigma, order);
      const double unsampled = order / (2 * sigma * sigma);
      CHECK(balls_and_bins(1, sigma, order) == Approx(unsampled).epsilon(1e-12));
      if (order > 25 * sigma) continue;
      CHECK(rdp_balls_and_bins_added(1, sigma, order) == Approx(unsampled).epsilon(3e-9));
    }
  }
}

TEST_CASE("adding a record to balls and bins costs no more than removing it") {
  for (const std::int64_t batches : {2, 10, 1000}) {
    for (const double sigma : {0.5, 1.0, 5.0, 1000.0}) {
      for (const double order : {1.1, 2.0, 6.0, 40.0, 256.0}) {
        if (order > 25 * static_cast<double>(batches) * sigma) continue;
        CAPTURE(batches, sigma, order);
        CHECK(rdp_balls_and_bins_added(batches, sigma, order) <=
              balls_and_bins(batches, sigma, order) * (1 + 3e-9));
      }
    }
  }
}

TEST_CASE("balls and bins cost less in more batches and with more noise, more in higher orders") {
  const std::array orders = {1.01, 1.5, 2.0, 3.0, 20.5, 200.0, 256.0, 257.0, 300.5, 10000.0};
  for (const double sigma : {0.01, 0.1, 0.7, 3.0, 50.0, 1000.0}) {
    std::vector<double> before = rdp_curve(1, sigma, orders);
    for (const std::int64_t batches : {2, 3, 16, 100, 999, 5000, 1000000}) {
      CAPTURE(sigma, batches);
      const std::vector<double> curve = rdp_curve_balls_and_bins(batches, sigma, orders);
      const std::vector<double> noisier = rdp_curve_balls_and_bins(batches, sigma * 1.1, orders);
      for (std::size_t i = 0; i < orders.size(); ++i) {
        CAPTURE(orders[i]);
        CHECK(curve[i] > 0);
        CHECK(curve[i] <= before[i] * (1 + 3e-9));
        CHECK(noisier[i] <= curve[i]);
        if (i > 0) CHECK(curve[i] >= curve[i - 1] * (1 - 3e-9));
      }
      before = curve;
    }
  }
}

// ln E[M^a] is convex in a; M^a is at least the sum of the (L / t)^a; and E[e^x] >= e^{E x} for x
// the number of pairs in one bin over sigma^2.
TEST_CASE("beyond the exact integer orders, balls and bins cost at least a known lower bound") {
  for (const std::int64_t batches : {2, 10, 1000}) {
    for (const double sigma : {0.5, 3.0, 100.0}) {
      const double t = static_cast<double>(batches), precision = 1 / (sigma * sigma);
      const auto log_moment = [&](double a) { return (a - 1) * balls_and_bins(batches, sigma, a); };
      const double last = log_moment(256), rise = last - log_moment(255);
      for (const double a : {257.0, 300.0, 1000.0, 10000.0}) {
        CAPTURE(batches, sigma, a);
        const double slack = 1 - 1e-6, pairs = a * (a - 1) / 2;
        CHECK(log_moment(a) >= slack * (last + (a - 256) * rise));
        CHECK(log_moment(a) >= slack * (pairs * precision - (a - 1) * std::log(t)));
        CHECK(log_moment(a) >= slack * pairs / t * precision);
      }
    }
  }
}

TEST_CASE("orders up to a million are answered") {
  CHECK(balls_and_bins(100, 1000, 1e6) > balls_and_bins(100, 1000, 1e5));
  CHECK(balls_and_bins(100, 1000, 1e6) < 0.5);
}

// P: outputs where N(1) is above N(0) have the densities (1-q) N(0) + q N(1) and N(0), the others
// N(1) and (1-q) N(1) + q N(0); s = sigma / 2. By the midpoint rule.
TEST_CASE(
    "a replaced record costs at least the divergence of the worst pair of fixed-size batches") {
  for (const double q : {0.01, 0.5, 0.99}) {
    for (const double sigma : {0.8, 2.0, 20.0}) {
      for (const double order : {1.1, 2.0, 6.5, 30.0}) {
        const double s = sigma / 2, step = s / 500;
        if (order * order / (s * s) > 500) continue;  // overflows
        double excess = 0;                            // of 1
        for (double x = 0.5 + step / 2; x < 1 + order + 12 * s; x += step) {
          const double change = q * std::expm1((x - 0.5) / (s * s)), w = 1 + change;
          const double convex = std::pow(w, order) + std::pow(w, 1 - order) - 2 - change;
          excess += step * std::exp(-x * x / (2 * s * s)) * convex;
        }
        excess /= s * std::sqrt(2 * std::acos(-1.0));
        const double truth = std::log1p(excess) / (order - 1);
        CAPTURE(q, sigma, order);
        CHECK(replaced(q, sigma, order) >= truth * (1 - 1e-6));
        CHECK(replaced(q, sigma, order) <= truth * 2);
      }
    }
  }
}

// Wang, Balle and Kasiviswanathan (2019), theorem 9, with divergences 2 j / sigma^2 of order j.
TEST_CASE("a replaced record costs no more than by an older theorem, or than without sampling") {
  for (const double order : {2.0, 3.0, 17.0, 64.0}) {
    for (const double sigma : {1.0, 3.0, 30.0}) {
      for (const double q : {1e-6, 0.01, 0.5}) {
        const double e = 2 / (sigma * sigma);
        if (order * order * e > 600) continue;  // overflows
        double binomial = order, sum = 0;
        for (double j = 2; j <= order; ++j) {
          binomial *= (order - j + 1) / j;
          double term = 2 * std::exp(j * (j - 1) * e);
          if (j == 2) term = std::min(term, 4 * std::expm1(2 * e));
          sum += std::pow(q, j) * binomial * term;
        }
        CAPTURE(order, sigma, q);
        CHECK(replaced(q, sigma, order) <= std::log1p(sum) / (order - 1) * (1 + 1e-12));
      }
    }
  }
  CHECK(replaced(1, 3, 7.5) == Approx(15.0 / 9).epsilon(1e-14));
  CHECK(replaced(0, 3, 7.5) == 0);
  for (const double order : {1.01, 2.0, 3.5, 64.0, 1e4}) {
    for (const double noise : {1e-60, 0.1, 1.0, 1000.0}) {
      for (const double rate : {1e-9, 0.01, 0.9}) {
        CAPTURE(order, noise, rate);
        CHECK(replaced(rate, noise, order) > 0);
        CHECK(replaced(rate, noise, order) <= 2 * order / (noise * noise) * (1 + 1e-12));
        CHECK(replaced(rate, noise, order) <= replaced(1.1 * rate, noise, order));
        CHECK(replaced(rate, 1.1 * noise, order) <= replaced(rate, noise, order));
      }
    }
  }
}

// By the pair that is worst for Poisson batches, P = (1-q) N(0) + q N(1), Q = (1-q) N(0) + q N(-1).
TEST_CASE("the divergence of a replaced record bounds that of Poisson batches") {
  for (const double q : {0.001, 0.05, 0.9}) {
    for (const double sigma : {1.0, 4.0}) {
      for (const double order : {1.2, 2.0, 5.5}) {
        const double step = sigma / 32;
        double sum = 0;
        for (double x = -40 * sigma; x < 40 * sigma; x += step) {
          const double p = 1 - q + q * std::exp((x - 0.5) / (sigma * sigma));
          const double r = 1 - q + q * std::exp((-x - 0.5) / (sigma * sigma));
          sum += step * std::exp(-x * x / (2 * sigma * sigma)) * r * std::pow(p / r, order);
        }
        const double truth = std::log(sum / (sigma * std::sqrt(2 * std::acos(-1.0)))) / (order - 1);
        CAPTURE(q, sigma, order);
        CHECK(truth > 0);
        CHECK(replaced(q, sigma, order) >= truth);
      }
    }
  }
}

TEST_CASE("rates, noise, orders and epochs out of range are errors") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  CHECK(balls_and_bins(10, 0, 2) == infinity);
  CHECK(replaced(0.1, 0, 2) == infinity);
  for (const double wrong : {-1.0, nan}) {
    CHECK_THROWS_AS(balls_and_bins(10, wrong, 2), std::invalid_argument);
    CHECK_THROWS_AS(rdp_balls_and_bins_added(10, wrong, 2), std::invalid_argument);
    CHECK_THROWS_AS(replaced(0.1, wrong, 2), std::invalid_argument);
    CHECK_THROWS_AS(replaced(wrong, 1, 2), std::invalid_argument);
  }
  for (const double order : {1.0, 1e7, nan}) {
    CHECK_THROWS_AS(balls_and_bins(10, 1, order), std::invalid_argument);
    CHECK_THROWS_AS(rdp_balls_and_bins_added(10, 1, order), std::invalid_argument);
    CHECK_THROWS_AS(replaced(0.1, 1, order), std::invalid_argument);
  }
  CHECK_THROWS_AS(balls_and_bins(0, 1, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_balls_and_bins_added(0, 1, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_balls_and_bins_added(10, 0.05, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_balls_and_bins_added(2, 1, 51), std::invalid_argument);
  CHECK_THROWS_AS(replaced(1.1, 1, 2), std::invalid_argument);
}
