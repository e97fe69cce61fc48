// Factors compared with dense linear algebra, and sensitivities with every participation pattern.
#include "dp/noise/correlated/strategy_matrix.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/noise_strategies.h"

namespace sotto {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

// The worst pattern, by trying all: C is non-negative, so equal vectors add up most.
double worst_pattern(const StrategyMatrix& strategy, Participation allowed) {
  const MatrixXd c = dense(strategy);
  double worst = 0;
  for (unsigned pattern = 1; pattern < 1U << strategy.steps(); ++pattern) {
    VectorXd sum = VectorXd::Zero(strategy.steps());
    bool valid = std::popcount(pattern) <= allowed.max_participations;
    for (std::int64_t t = 0, last = -allowed.min_separation; t < strategy.steps(); ++t) {
      if ((pattern >> t & 1) == 0) continue;
      valid = valid && t - last >= allowed.min_separation;
      last = t;
      sum += c.col(t);
    }
    if (valid) worst = std::max(worst, sum.norm());
  }
  return worst;
}

bool falls(const StrategyMatrix& strategy) {
  const auto* banded = std::get_if<BandedToeplitz>(&strategy.factor());
  return banded == nullptr ||
         std::is_sorted(banded->coefficients.rbegin(), banded->coefficients.rend());
}

TEST_CASE("the factor is lower triangular with ones on the diagonal and its number of bands") {
  for (const StrategyMatrix& strategy : strategies(13)) {
    const MatrixXd c = dense(strategy);
    CHECK(c.isLowerTriangular());
    CHECK(c.diagonal().isOnes());
    CHECK(c.minCoeff() >= 0);
    for (std::int64_t apart = strategy.bands(); apart < 13; ++apart) CHECK(c(apart, 0) == 0);
  }
  CHECK(StrategyMatrix(BandedToeplitz{{1, 0.5, 0.25}}, 2).bands() == 2);
}

TEST_CASE("solve is the product with the inverse, and variances are those of its rows") {
  for (const std::int64_t steps : {1, 2, 13, 64}) {
    const MatrixXd a = MatrixXd::Ones(steps, steps).triangularView<Eigen::Lower>();
    for (const StrategyMatrix& strategy : strategies(steps)) {
      const MatrixXd inverse = dense(strategy).inverse();
      const VectorXd z = VectorXd::LinSpaced(steps, -1, 2).array().sin();
      const std::vector<double> y = strategy.solve({z.begin(), z.end()});
      const VectorXd expected = inverse * z;
      const VectorXd prefixes = (a * inverse).rowwise().squaredNorm();
      const std::vector<double> variances = strategy.prefix_variances();
      for (std::int64_t t = 0; t < steps; ++t) {
        const auto i = static_cast<std::size_t>(t);
        CHECK(std::abs(y[i] - expected[t]) < 1e-12);
        CHECK(variances[i] == Approx(prefixes[t]).epsilon(1e-12));
        CHECK(strategy.noise_variance(t) == Approx(inverse.row(t).squaredNorm()).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("sensitivities are those of the worst pattern, or above") {
  constexpr std::int64_t steps = 11;
  for (const StrategyMatrix& strategy : strategies(steps)) {
    for (std::int64_t min_separation = 1; min_separation <= steps + 1; ++min_separation) {
      for (const std::int64_t max : {1, 2, 3, 11}) {
        const Participation allowed{min_separation, max};
        const double worst = worst_pattern(strategy, allowed);
        const bool tree = std::holds_alternative<TreeFactor>(strategy.factor());
        const bool exact = !tree && (falls(strategy) || strategy.bands() <= min_separation);
        CAPTURE(strategy.factor().index(), min_separation, max, worst);
        CHECK(strategy.sensitivity(allowed) >= worst * (1 - 1e-14));
        CHECK(strategy.sensitivity(allowed) <= worst * (exact ? 1 + 1e-12 : 1.35));
      }
    }
  }
}

TEST_CASE("a tree's sensitivity is exact for one step of a record and for all of them") {
  for (const std::int64_t steps : {1, 2, 7, 8, 9, 12}) {
    const StrategyMatrix tree(TreeFactor{}, steps);
    const auto levels = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(steps)));
    CHECK(tree.sensitivity({.max_participations = 1}) == Approx(std::sqrt(levels)));
    CHECK(tree.sensitivity({}) == Approx(worst_pattern(tree, {})));
  }
}

// TensorFlow Privacy's table of the largest squared sensitivity, for a tree with all its nodes. Its
// separation counts the steps in between.
TEST_CASE("a tree's sensitivity is at most that of the tree with all its nodes") {
  const auto square = [](std::int64_t steps, Participation record) {
    return std::pow(StrategyMatrix(TreeFactor{}, steps).sensitivity(record), 2);
  };
  CHECK(square(8, {.min_separation = 8, .max_participations = 1}) == Approx(4));
  CHECK(square(9, {.min_separation = 4, .max_participations = 3}) <= 11 + 1e-12);
  CHECK(square(7, {.min_separation = 3, .max_participations = 3}) <= 9 + 1e-12);
  CHECK(square(24, {.min_separation = 3, .max_participations = 8}) <= 88 + 1e-12);
  CHECK(square(8, {}) <= 120);
}

// Kairouz et al. 2021: both the sensitivity and the variance grow with the logarithm.
TEST_CASE("the error of a tree grows with the squared logarithm of the steps") {
  for (int height = 1; height < 15; ++height) {
    const std::int64_t steps = std::int64_t{1} << height;
    const StrategyMatrix tree(TreeFactor{}, steps);
    const std::vector<double> variances = tree.prefix_variances();
    CHECK(variances.back() == 1);
    CHECK(variances[variances.size() - 2] == height);
    CHECK(squared_error(tree, {.max_participations = 1}, PrefixError::max) ==
          Approx(height * (height + 1)));
    // On average half of the nodes, except for the last step's single node.
    const double mean =
        (0.5 * height * static_cast<double>(steps) + 1) / static_cast<double>(steps);
    CHECK(squared_error(tree, {.max_participations = 1}, PrefixError::mean) ==
          Approx(mean * (height + 1)));
    const StrategyMatrix independent(BandedToeplitz{{1}}, steps);
    CHECK(squared_error(independent, {.max_participations = 1}, PrefixError::max) == steps);
  }
}

// Fichtenberger et al. 2023: C C = A, and 1 + ln(n) / pi or little more is the best possible error.
TEST_CASE("the square root of the prefix sums is one, with nearly the best error") {
  constexpr std::int64_t steps = 200;
  const StrategyMatrix root(square_root_factor(steps), steps);
  const MatrixXd c = dense(root), square = c * c;
  const MatrixXd a = MatrixXd::Ones(steps, steps).triangularView<Eigen::Lower>();
  CHECK((square - a).cwiseAbs().maxCoeff() < 1e-9);  // coefficients are rounded to 2^-40
  const double error = std::sqrt(squared_error(root, {.max_participations = 1}, PrefixError::max));
  CHECK(error / (1 + std::log(double{steps}) / M_PI) == Approx(1).margin(0.05));
}

TEST_CASE("a single column's norm is the sensitivity of records that take part once") {
  const StrategyMatrix banded(BandedToeplitz{{1, 0.5, 0.25}}, 30);
  const double column = std::sqrt(1 + 0.25 + 0.0625);
  CHECK(banded.sensitivity({.min_separation = 30}) == Approx(column));
  CHECK(banded.sensitivity({.min_separation = 3}) == Approx(column * std::sqrt(10.0)));
  CHECK(banded.sensitivity({.min_separation = 3, .max_participations = 6}) ==
        Approx(column * std::sqrt(6.0)));
  // JAX-Privacy's table: squares of 8 and 6 for columns of norm 1.
  const StrategyMatrix table(square_root_factor(4), 32);
  const double norm = table.sensitivity({.max_participations = 1});
  CHECK(table.sensitivity({.min_separation = 4}) == Approx(norm * std::sqrt(8.0)));
  CHECK(table.sensitivity({.min_separation = 4, .max_participations = 6}) ==
        Approx(norm * std::sqrt(6.0)));
}

TEST_CASE("a factor's numbers are rounded to multiples of 2^-40") {
  const StrategyMatrix banded(BandedToeplitz{{1, 0.3}}, 9);
  const StrategyMatrix buffered(BufferedToeplitz{{0.7}, {0.1}}, 9);
  const double expected[] = {0.3, 0.7, 0.1};
  const double numbers[] = {std::get<BandedToeplitz>(banded.factor()).coefficients[1],
                            std::get<BufferedToeplitz>(buffered.factor()).decays[0],
                            std::get<BufferedToeplitz>(buffered.factor()).scales[0]};
  for (std::size_t i = 0; i < 3; ++i) {
    const double whole = std::ldexp(numbers[i], 40);
    CHECK(whole == std::round(whole));
    CHECK(std::abs(numbers[i] - expected[i]) <= 0x1p-41);
  }
}

TEST_CASE("factors out of range are an error") {
  const auto refused = [](StrategyFactor factor, std::int64_t steps = 10) {
    CHECK_THROWS_AS(StrategyMatrix(std::move(factor), steps), std::invalid_argument);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused(TreeFactor{}, 0);
  refused(BandedToeplitz{});
  refused(BandedToeplitz{{0.5}});
  refused(BandedToeplitz{{1, -0.1}});
  refused(BandedToeplitz{{1, 1.1}});
  refused(BandedToeplitz{{1, nan}});
  refused(BufferedToeplitz{{0.5}, {}});
  refused(BufferedToeplitz{{1}, {0.5}});
  refused(BufferedToeplitz{{-0.1}, {0.5}});
  refused(BufferedToeplitz{{nan}, {0.5}});
  refused(BufferedToeplitz{{0.5}, {-0.1}});
  refused(BufferedToeplitz{{0.5}, {nan}});
  refused(BufferedToeplitz{{0.5, 0.6}, {0.6, 0.6}});
  const StrategyMatrix tree(TreeFactor{}, 4);
  CHECK_THROWS_AS(tree.sensitivity({.min_separation = 0}), std::invalid_argument);
  CHECK_THROWS_AS(tree.sensitivity({.max_participations = 0}), std::invalid_argument);
  CHECK_THROWS_AS(tree.entry(4, 0), std::invalid_argument);
  CHECK_THROWS_AS(tree.noise_variance(4), std::invalid_argument);
  CHECK_THROWS_AS(tree.solve({1, 2}), std::invalid_argument);
  CHECK_THROWS_AS(square_root_factor(0), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
