// Optimal factors compared with published values, and as minima of their objectives.
#include "dp/noise/correlated/strategy_optimization.h"

#include <cmath>
#include <numbers>

#include "dp/numerics/bfgs.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

double error_of(const StrategyMatrix& strategy, const ErrorObjective& goal) {
  return squared_error(strategy, goal.participation, goal.error);
}

const std::vector<ErrorObjective> goals = {
    {.steps = 300, .participation = {.min_separation = 300}, .error = PrefixError::mean},
    {.steps = 300, .participation = {.min_separation = 300}, .error = PrefixError::max},
    {.steps = 300, .participation = {.min_separation = 60}, .error = PrefixError::mean},
    {.steps = 300,
     .participation = {.min_separation = 20, .max_participations = 3},
     .error = PrefixError::max},
};

TEST_CASE("the search finds the minimum of a curved valley") {
  const auto valley = [](const std::vector<double>& x) {
    const double a = 1 - x[0], b = x[1] - x[0] * x[0];
    return ValueAndGradient{a * a + 100 * b * b, {-2 * a - 400 * x[0] * b, 200 * b}};
  };
  const std::vector<double> x = minimize(valley, {-1.2, 1});
  CHECK(x[0] == Approx(1).epsilon(1e-8));
  CHECK(x[1] == Approx(1).epsilon(1e-8));
}

TEST_CASE("where a function is not finite there is no step") {
  const auto barrier = [](const std::vector<double>& x) {
    return ValueAndGradient{x[0] - std::log(x[0]), {1 - 1 / x[0]}};
  };
  CHECK(minimize(barrier, {30})[0] == Approx(1).epsilon(1e-8));
  CHECK(minimize([](const auto&) { return ValueAndGradient{}; }, {}).empty());
}

// A relative change of any number by 1e-3 has an effect of second order only.
TEST_CASE("no small change makes an optimal banded factor better") {
  for (const ErrorObjective& goal : goals) {
    const StrategyMatrix best = optimize_banded_toeplitz(goal, 8);
    const BandedToeplitz factor = std::get<BandedToeplitz>(best.factor());
    for (std::size_t i = 1; i < 8; ++i) {
      for (const double change : {0.999, 1.001}) {
        BandedToeplitz changed = factor;
        changed.coefficients[i] *= change;
        if (changed.coefficients[i] > changed.coefficients[i - 1]) continue;
        CHECK(error_of(StrategyMatrix(changed, goal.steps), goal) > error_of(best, goal));
      }
    }
  }
}

TEST_CASE("no small change makes an optimal buffered factor better") {
  for (const ErrorObjective& goal : goals) {
    const StrategyMatrix best = optimize_buffered_toeplitz(goal, 2);
    const BufferedToeplitz factor = std::get<BufferedToeplitz>(best.factor());
    for (std::size_t i = 0; i < 2; ++i) {
      for (const double change : {0.999, 1.001}) {
        BufferedToeplitz decay = factor, scale = factor;
        decay.decays[i] = 1 - (1 - decay.decays[i]) * change;
        scale.scales[i] *= change;
        CHECK(error_of(StrategyMatrix(decay, goal.steps), goal) > error_of(best, goal));
        CHECK(error_of(StrategyMatrix(scale, goal.steps), goal) > error_of(best, goal));
      }
    }
  }
}

TEST_CASE("optimal factors are better than the square root's first bands, and more are better") {
  for (const ErrorObjective& goal : goals) {
    double last = std::numeric_limits<double>::infinity();
    for (const std::int64_t bands : {1, 2, 4, 16, 20}) {
      const double error = error_of(optimize_banded_toeplitz(goal, bands), goal);
      CHECK(error <= error_of(StrategyMatrix(square_root_factor(bands), goal.steps), goal));
      CHECK(error < last);
      last = error;
    }
    last = error_of(StrategyMatrix(BandedToeplitz{{1}}, goal.steps), goal);
    for (const int buffers : {1, 2, 3}) {
      const double error = error_of(optimize_buffered_toeplitz(goal, buffers), goal);
      CHECK(error <= last * (1 + 1e-6));  // another buffer may not help
      last = error;
    }
  }
}

TEST_CASE("two buffers stay two where that is better") {
  const ErrorObjective goal{.steps = 1000, .participation = {.min_separation = 50}};
  const double one = error_of(optimize_buffered_toeplitz(goal, 1), goal);
  CHECK(error_of(optimize_buffered_toeplitz(goal, 2), goal) < 0.99 * one);
}

// JAX-Privacy's table, to five digits: the largest error of 100,000 steps, each record once.
TEST_CASE("two buffers for 100,000 steps are the published ones", "[gate]") {
  const StrategyMatrix best = optimize_buffered_toeplitz(
      {.steps = 100'000, .participation = {.max_participations = 1}, .error = PrefixError::max}, 2);
  const BufferedToeplitz factor = std::get<BufferedToeplitz>(best.factor());
  const std::size_t slow = factor.decays[0] > factor.decays[1] ? 0 : 1;
  CHECK(factor.decays[slow] == Approx(0.9999528892).epsilon(1e-5));
  CHECK(factor.scales[slow] == Approx(0.0122853238).epsilon(1e-5));
  CHECK(factor.decays[1 - slow] == Approx(0.9857068667).epsilon(1e-5));
  CHECK(factor.scales[1 - slow] == Approx(0.1878393665).epsilon(1e-5));
}

// Fichtenberger et al. 2023: the square root's error is 1 + ln(n) / pi up to a few hundredths, and
// no factor's is smaller by more. McMahan et al. 2024: few buffers are nearly as good.
TEST_CASE("a few buffers come near the best error there is") {
  const ErrorObjective goal{
      .steps = 1000, .participation = {.max_participations = 1}, .error = PrefixError::max};
  const double limit = 1 + std::log(1000.0) / std::numbers::pi;
  const double root = std::sqrt(error_of(StrategyMatrix(square_root_factor(1000), 1000), goal));
  const double buffered = std::sqrt(error_of(optimize_buffered_toeplitz(goal, 4), goal));
  CHECK(root / limit == Approx(1.03).margin(0.03));
  CHECK(buffered / limit == Approx(1.03).margin(0.03));
}

TEST_CASE("goals without a solution are an error") {
  CHECK_THROWS_AS(optimize_banded_toeplitz({.steps = 4}, 0), std::invalid_argument);
  CHECK_THROWS_AS(optimize_banded_toeplitz({.steps = 4}, 5), std::invalid_argument);
  CHECK_THROWS_AS(optimize_banded_toeplitz({.steps = 4, .participation = {.min_separation = 0}}, 2),
                  std::invalid_argument);
  CHECK_THROWS_AS(optimize_buffered_toeplitz({.steps = 4}, 17), std::invalid_argument);
  CHECK_THROWS_AS(optimize_buffered_toeplitz({.steps = 0}, 1), std::invalid_argument);
  CHECK_THROWS_AS(
      optimize_buffered_toeplitz({.steps = 4, .participation = {.max_participations = 0}}, 1),
      std::invalid_argument);
}

}  // namespace
}  // namespace sotto
