// File tags: [sanitized]
#include "dp/accounting/pld/pld_accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"
#include "tests/support/pld_cases.h"
#include "tests/support/threads.h"

using namespace sotto;

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();

double above(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// delta of one release in closed form: P and Q above the point where the loss is epsilon, or Q and
// P below the point where it is -epsilon.
double delta_of_one(double q, double sigma, double epsilon) {
  const auto point = [&](double loss) {
    return 0.5 + sigma * sigma * std::log1p(std::expm1(loss) / q);
  };
  const double x = point(epsilon), y = point(-epsilon);
  const auto mixture_above = [&](double z) {
    return (1 - q) * above(z / sigma) + q * above((z - 1) / sigma);
  };
  const double removed = mixture_above(x) - std::exp(epsilon) * above(x / sigma);
  const auto mixture_below = [&](double z) {
    return (1 - q) * above(-z / sigma) + q * above((1 - z) / sigma);
  };
  const double added = std::isnan(y) ? 0 : above(-y / sigma) - std::exp(epsilon) * mixture_below(y);
  return std::max(removed, added);
}

// delta of two releases, one record removed: the closed form for the second, given the first,
// integrated over the first by the trapezoidal rule in long double.
double delta_of_two(double q, double sigma, double epsilon) {
  using Real = long double;
  const Real s = sigma, step = s / 1024;
  const auto upper = [&](Real z) { return std::erfc(z / std::sqrt(Real(2))) / 2; };
  Real sum = 0;
  for (Real x = -12 * s; x < 1 + 12 * s; x += step) {
    const Real loss = std::log1p(q * std::expm1((2 * x - 1) / (2 * s * s)));
    const Real density = std::exp(-x * x / (2 * s * s) + loss);
    const Real rest = epsilon - loss, inner = 1 + std::expm1(rest) / q;
    Real value = -std::expm1(rest);  // all of the second release counts
    if (inner > 0) {
      const Real z = Real(0.5) + s * s * std::log(inner);
      value = (1 - q) * upper(z / s) + q * upper((z - 1) / s) - std::exp(rest) * upper(z / s);
    }
    sum += density * value * step;
  }
  return static_cast<double>(sum / (s * std::sqrt(2 * std::acos(Real(-1)))));
}

struct Golden {
  double q, sigma;
  std::int64_t steps;
  double delta, low, estimate, high;
};

}  // namespace

// Proven bounds and the estimate of another program with an error of 0.01.
TEST_CASE("both bounds are within published bounds and near the published estimate", "[gate]") {
  const std::vector<Golden> table = {
      {256.0 / 60000, 1.1, 14040, 1e-5, 2.36941, 2.37956, 2.38970},
      {256.0 / 60000, 1.3, 3510, 1e-5, .85370, .86376, .87383},
      {256.0 / 60000, 0.7, 10530, 1e-5, 5.62475, 5.63510, 5.64545},
      {512.0 / 60000, 1.23, 4680, 1e-5, 2.35120, 2.36135, 2.37149},
      {2048.0 / 60000, 2.15, 1160, 1e-5, 2.36596, 2.37610, 2.38624},
      {1024.0 / 50000, 1.54, 1440, 1e-5, 2.35494, 2.36509, 2.37523},
      {256.0 / 29305, 0.55, 2052, 1e-5, 11.77368, 11.78446, 11.79525},
      {256.0 / 29305, 0.55, 2280, 1e-5, 12.34193, 12.35274, 12.36355},
      {512.0 / 25000, 0.56, 432, 1e-5, 12.04912, 12.05996, 12.07081},
      {512.0 / 25000, 0.56, 1200, 1e-5, 19.26942, 19.28052, 19.29163},
      {4096.0 / 50000, 10, 875, 1e-5, .89271, .90277, .91283},
      {16384.0 / 1281167, 2.5, 71589, 8e-7, 7.42985, 7.44015, 7.45044},
      {16384.0 / 50000, 21.1, 250, 1e-5, .90206, .91212, .92218},
      {256.0 / 32561, 1.1, 2540, 1e-5, 1.86524, 1.87536, 1.88548},
      {0.01, 1.1, 1000, 1e-5, 1.50526, 1.51537, 1.52547},
      {0.01, 1.1, 10000, 1e-5, 5.18230, 5.19258, 5.20287},
      {0.01, 0.8, 1000, 1e-5, 3.13077, 3.14102, 3.15126},
      {0.005, 0.8, 1000, 1e-6, 1.99392, 2.00411, 2.01430},
      {0.001, 0.6, 10000, 1e-6, 3.14189, 3.15220, 3.16250},
      {0.1, 2, 1000, 1e-5, 8.26888, 8.27929, 8.28970},
      {0.1, 3, 512, 1e-6, 3.75951, 3.76969, 3.77986},
      {0.02, 1, 2000, 1e-5, 5.60548, 5.61580, 5.62612},
      {0.5, 5, 100, 1e-5, 4.47760, 4.48785, 4.49809},
      {0.2, 0.5, 3, 1e-2, 4.64788, 4.65903, 4.67018},
      {256.0 / 100000, 0.9, 4900, 1e-5, 1.12984, 1.13993, 1.15001},
      {0.001, 1, 100000, 1e-7, 2.05408, 2.06417, 2.07425},
      {0.05, 1.5, 500, 1e-8, 5.15661, 5.16679, 5.17697},
      {0.01, 4, 10000, 1e-9, 1.41886, 1.42891, 1.43895}};
  for (const Golden& row : table) {
    CAPTURE(row.q, row.sigma, row.steps);
    const PldAccountant accountant = composed(row.q, row.sigma, row.steps);
    const double upper = accountant.epsilon(row.delta);
    const double lower = accountant.epsilon(row.delta, Bound::lower);
    CHECK(lower <= upper);
    CHECK(lower > row.low);
    CHECK(upper < row.high);
    CHECK(upper - lower < 6e-4 * upper);
    CHECK(upper > row.estimate - 1e-4);
    CHECK(upper < row.estimate * 1.0002 + 1e-4);
  }
}

TEST_CASE("delta agrees with published numbers") {
  CHECK(composed(0.2, 0.5, 3).delta(1) == Approx(0.15594).margin(1e-4));
  CHECK(composed(1, std::sqrt(3.0), 3).delta(1) == Approx(0.126936).margin(1e-6));
}

TEST_CASE("one release agrees with its closed form from both sides", "[gate]") {
  for (const double q : {1e-4, 0.01, 0.3, 0.9}) {
    for (const double sigma : {0.3, 0.7, 1.5, 10.0}) {
      const PldAccountant accountant = composed(q, sigma, 1);
      for (const double part : {0.0, 0.1, 0.5, 0.9}) {
        const double epsilon = part * std::log1p(q * std::expm1(2 / sigma));
        const double truth = delta_of_one(q, sigma, epsilon);
        CAPTURE(q, sigma, epsilon, truth);
        if (truth < 1e-12) continue;  // the closed form subtracts
        const double upper = accountant.delta(epsilon);
        const double lower = accountant.delta(epsilon, Bound::lower);
        CHECK(upper >= truth * (1 - 1e-9));
        CHECK(upper <= truth * 1.005);
        CHECK(lower <= truth * (1 + 1e-9));
        CHECK(lower >= truth * 0.99);
      }
    }
  }
}

// delta of one release where e^epsilon overflows: with x where the loss is epsilon and z = x / s, q
// P[N(1, s^2) > x] - e^epsilon P[N(0, s^2) > x], whose densities at x are equal, and P[N(0, 1) > z]
// = density(z) / (z + 1 / (z + 2 / (z + ...))).
double delta_of_one_beyond(double q, double sigma, double epsilon) {
  const double x = 0.5 + sigma * sigma * (epsilon - std::log(q)), z = x / sigma;
  const double u = (x - 1) / sigma;
  double fraction = z;
  for (int k = 40; k >= 1; --k) fraction = z + k / fraction;
  const double density = std::exp(-u * u / 2) / std::sqrt(2 * std::acos(-1.0));
  return q * (above(u) - density / fraction);
}

TEST_CASE("losses whose exponential overflows are bounded from both sides", "[gate]") {
  for (const double q : {1e-11, 8.3e-6, 0.01}) {
    for (const double sigma : {0.0101, 0.025}) {
      for (const double part : {0.9, 1e-3}) {
        const PldAccountant pld = composed(q, sigma, 1);
        const double upper = pld.epsilon(part * q), lower = pld.epsilon(part * q, Bound::lower);
        CAPTURE(q, sigma, part, upper, lower);
        CHECK(delta_of_one_beyond(q, sigma, upper) <= part * q * (1 + 1e-9));
        CHECK(delta_of_one_beyond(q, sigma, lower) >= part * q * (1 - 1e-9));
        CHECK(lower > 0.9 * upper);
      }
    }
  }
}

// The second release reveals nothing or, with mass q below delta, everything.
TEST_CASE("a rare release that reveals all takes its probability from delta alone", "[gate]") {
  constexpr double q = 8.3e-6;
  for (const double delta : {1e-5, 2e-5, 1e-4}) {
    PldAccountant pld;
    pld.compose({2.5});
    pld.compose({0.025, Sampling::poisson, q});
    const double truth = gaussian_epsilon(2.5, (delta - q) / (1 - q));
    CAPTURE(delta, truth);
    CHECK(pld.epsilon(delta) < truth * 1.002);
    CHECK(pld.epsilon(delta) > truth * (1 - 1e-9));
    CHECK(pld.epsilon(delta, Bound::lower) > truth * 0.998);
    CHECK(pld.epsilon(delta, Bound::lower) < truth * (1 + 1e-9));
  }
}

TEST_CASE("two releases agree with quadrature from both sides", "[gate]") {
  for (const double q : {0.01, 0.2, 0.7}) {
    for (const double sigma : {0.5, 1.0, 4.0}) {
      const PldAccountant accountant = composed(q, sigma, 2);
      for (const double part : {0.2, 0.6, 1.0}) {
        const double epsilon = part * std::log1p(q * std::expm1(3 / sigma));
        const double truth = delta_of_two(q, sigma, epsilon);
        CAPTURE(q, sigma, epsilon, truth);
        const double upper = accountant.delta(epsilon);
        const double lower = accountant.delta(epsilon, Bound::lower);
        CHECK(upper >= truth * (1 - 1e-8));
        CHECK(upper <= truth * 1.002);
        CHECK(lower <= truth * (1 + 1e-8));
        CHECK(lower >= truth * 0.995);
      }
    }
  }
}

// A sampling rate of nearly 1 is composed numerically, the full batch in closed form.
TEST_CASE("without sampling the closed form lies between the bounds") {
  for (const auto relation :
       {NeighboringRelation::add_or_remove_one, NeighboringRelation::replace_one}) {
    for (const double sigma : {0.5, 2.0, 30.0}) {
      for (const double delta : {1e-3, 1e-8, 1e-14}) {
        CAPTURE(sigma, delta);
        const double noise = relation == NeighboringRelation::replace_one ? sigma / 2 : sigma;
        const double exact = gaussian_epsilon(noise, delta, 20);
        CHECK(composed(1, sigma, 20, relation).epsilon(delta) == Approx(exact).epsilon(1e-12));
        const PldAccountant numerical = composed(1 - 1e-14, sigma, 20, relation);
        const double upper = numerical.epsilon(delta);
        const double lower = numerical.epsilon(delta, Bound::lower);
        CHECK(upper >= exact * (1 - 1e-9));
        CHECK(upper <= exact * (1 + 2e-4));
        CHECK(lower <= exact * (1 + 1e-9));
        CHECK(lower >= exact * (1 - 1e-3));
      }
    }
  }
}

TEST_CASE("epsilon is below what Renyi divergences prove, down to small delta") {
  for (const double delta : {1e-2, 1e-6, 1e-10, 1e-15, 1e-30}) {
    for (const double q : {0.001, 0.05}) {
      CAPTURE(delta, q);
      RdpAccountant rdp;
      rdp.compose({1, Sampling::poisson, q}, 1000);
      const PldAccountant accountant = composed(q, 1, 1000);
      const double epsilon = accountant.epsilon(delta);
      CHECK(epsilon <= rdp.epsilon(delta));
      CHECK(accountant.epsilon(delta, Bound::lower) >= 0.999 * epsilon);
    }
  }
}

TEST_CASE("a small delta is found although tails are heavier than it") {
  const PldAccountant accountant = composed(1.3e-8, 1.76, 1000);
  CHECK(accountant.delta(1e-4) < 1e-50);
  CHECK(accountant.delta(1e-2) < accountant.delta(1e-4));
  PldAccountant replace(NeighboringRelation::replace_one);
  replace.compose({1.76, Sampling::fixed_size, 1.3e-8}, 1000);
  CHECK(replace.delta(1e-4) < 1e-17);
  RdpAccountant rdp;
  rdp.compose({0.44, Sampling::poisson, 6.3e-8}, 11425);
  CHECK(composed(6.3e-8, 0.44, 11425).delta(0.0022) <= rdp.delta(0.0022));
}

// For fixed-size batches with one record replaced: H(1 + (e^epsilon - 1) / q) of two Gaussians at
// distance 2, times q.
double delta_of_fixed_size(double q, double sigma, double epsilon) {
  return q * gaussian_delta(sigma / 2, std::log1p(std::expm1(epsilon) / q));
}

TEST_CASE("one batch of a fixed size agrees with its closed form from both sides", "[gate]") {
  for (const double q : {1e-4, 0.3, 0.9}) {
    for (const double sigma : {0.6, 3.0, 20.0}) {
      PldAccountant accountant(NeighboringRelation::replace_one);
      accountant.compose({sigma, Sampling::fixed_size, q});
      for (const double part : {0.0, 0.5, 0.9}) {
        const double epsilon = part * std::log1p(q * std::expm1(4 / sigma));
        const double truth = delta_of_fixed_size(q, sigma, epsilon);
        CAPTURE(q, sigma, epsilon, truth);
        if (truth < 1e-12) continue;
        const double upper = accountant.delta(epsilon);
        const double lower = accountant.delta(epsilon, Bound::lower);
        CHECK(upper >= truth * (1 - 1e-9));
        CHECK(upper <= truth * 1.005);
        CHECK(lower <= truth * (1 + 1e-9));
        CHECK(lower >= truth * 0.98);
      }
    }
  }
}

// The second release, given the first, in closed form; for e^epsilon < 1 by symmetry, H(x) = 1 - x
// + x H(1/x). The loss of the first is ln w where N(1) is above N(0), else minus that of the
// reflected outcome, and 0 with the missing probability.
TEST_CASE("two batches of a fixed size agree with quadrature of the spliced profile") {
  for (const double q : {0.01, 0.3}) {
    for (const double sigma : {1.0, 4.0}) {
      PldAccountant accountant(NeighboringRelation::replace_one);
      accountant.compose({sigma, Sampling::fixed_size, q}, 2);
      const double s = sigma / 2, step = s / 512;
      const auto profile = [&](double epsilon) {
        if (epsilon >= 0) return delta_of_fixed_size(q, sigma, epsilon);
        return -std::expm1(epsilon) + std::exp(epsilon) * delta_of_fixed_size(q, sigma, -epsilon);
      };
      for (const double part : {0.2, 0.8}) {
        const double epsilon = part * std::log1p(q * std::expm1(6 / sigma));
        double sum = 0, mass = 0;
        for (double x = 0.5 + step / 2; x < 1 + 13 * s; x += step) {
          const double density =
              step * std::exp(-x * x / (2 * s * s)) / (s * std::sqrt(2 * std::acos(-1.0)));
          const double loss = std::log1p(q * std::expm1((x - 0.5) / (s * s)));
          sum += density * (std::exp(loss) * profile(epsilon - loss) + profile(epsilon + loss));
          mass += density * (std::exp(loss) + 1);
        }
        const double truth = sum + (1 - mass) * profile(epsilon);
        CAPTURE(q, sigma, epsilon, truth);
        CHECK(accountant.delta(epsilon) >= truth * (1 - 1e-5));
        CHECK(accountant.delta(epsilon) <= truth * 1.003);
        CHECK(accountant.delta(epsilon, Bound::lower) <= truth);
        CHECK(accountant.delta(epsilon, Bound::lower) >= 0.5 * truth);
      }
    }
  }
}

TEST_CASE("epsilon of fixed size batches is below what Renyi divergences prove") {
  for (const double q : {0.001, 0.1}) {
    for (const double sigma : {1.0, 5.0}) {
      for (const std::int64_t steps : {1, 1000}) {
        PldAccountant accountant(NeighboringRelation::replace_one);
        RdpAccountant rdp(default_orders(), NeighboringRelation::replace_one);
        accountant.compose({sigma, Sampling::fixed_size, q}, steps);
        rdp.compose({sigma, Sampling::fixed_size, q}, steps);
        CAPTURE(q, sigma, steps);
        const double upper = accountant.epsilon(1e-6),
                     lower = accountant.epsilon(1e-6, Bound::lower);
        CHECK(upper <= rdp.epsilon(1e-6));
        CHECK(lower <= upper);
        CHECK(lower >= 0.5 * upper);
        CHECK(accountant.epsilon(1e-6) == upper);  // the lower bound's releases are not kept
      }
    }
  }
}

// A release that reveals nearly nothing makes full batches be composed numerically, too.
TEST_CASE("full batches among sampled ones agree with the closed form") {
  for (const double sigma : {0.02, 0.3, 0.8, 5.0}) {
    CAPTURE(sigma);
    PldAccountant accountant = composed(1, sigma, 3);
    accountant.compose({1e6, Sampling::poisson, 1e-6});
    const double exact = gaussian_epsilon(sigma, 1e-6, 3);
    CHECK(accountant.epsilon(1e-6) >= exact * (1 - 1e-9));
    CHECK(accountant.epsilon(1e-6) <= exact * (1 + 2e-4));
    CHECK(accountant.epsilon(1e-6, Bound::lower) <= exact * (1 + 1e-9));
    CHECK(accountant.epsilon(1e-6, Bound::lower) >= exact * (1 - 2e-3));
  }
}

TEST_CASE("the order of composition and the number of calls do not matter") {
  const Event rare{0.8, Sampling::poisson, 0.001}, often{3, Sampling::poisson, 0.1};
  const Event all{20, Sampling::full_batch, 1};
  PldAccountant phases, steps, reversed;
  phases.compose(rare, 100);
  phases.compose(often, 30);
  phases.compose(all, 2);
  reversed.compose(all, 2);
  reversed.compose(often, 30);
  reversed.compose(rare, 100);
  double previous = 0;
  for (int i = 0; i < 132; ++i) {
    steps.compose(i < 100 ? rare : i < 130 ? often : all);
    const double epsilon = steps.epsilon(1e-6);
    CHECK(epsilon >= previous * (1 - 1e-4));
    previous = epsilon;
  }
  CHECK(steps.epsilon(1e-6) == Approx(phases.epsilon(1e-6)).epsilon(1e-12));
  CHECK(reversed.epsilon(1e-6) == phases.epsilon(1e-6));
}

// The largest losses are rare, and dominate the moments.
TEST_CASE("many kinds of releases have near bounds, with any number of threads", "[gate]") {
  const auto spent = [](Bound bound, int threads) {
    const Threads scope(threads);
    PldAccountant accountant;
    for (int step = 0; step < 60; ++step)
      accountant.compose({0.8 + step / 60.0, Sampling::poisson, 0.004}, 1 + step % 12);
    return accountant.epsilon(1e-5, bound);
  };
  const double upper = spent(Bound::upper, 1), lower = spent(Bound::lower, 1);
  CHECK(lower <= upper);
  CHECK(lower >= 0.99 * upper);
  CHECK(spent(Bound::upper, 2) == upper);
}

TEST_CASE("an empty history spends nothing and no noise proves nothing") {
  PldAccountant accountant;
  accountant.compose({1, Sampling::poisson, 0.1}, 0);
  accountant.compose({1, Sampling::poisson, 0}, 10);
  CHECK(accountant.epsilon(1e-5) == 0);
  CHECK(accountant.delta(0) == 0);
  accountant.compose({0, Sampling::poisson, 0.1});
  CHECK(accountant.epsilon(1e-5) == infinity);
  CHECK(accountant.delta(3) == 1);
}

TEST_CASE("events, deltas and epsilons out of range are errors") {
  PldAccountant accountant;
  CHECK_THROWS_AS(accountant.compose({-1, Sampling::poisson, 0.1}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({1, Sampling::full_batch, 0.1}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.compose({1, Sampling::poisson, 0.1}, -1), std::invalid_argument);
  CHECK_THROWS_AS(accountant.epsilon(0), std::invalid_argument);
  CHECK_THROWS_AS(accountant.epsilon(1), std::invalid_argument);
  CHECK_THROWS_AS(accountant.delta(-1), std::invalid_argument);
  CHECK_THROWS_AS(accountant.delta(infinity), std::invalid_argument);
}
