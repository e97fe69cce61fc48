#include "sotto/dp/calibration.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "sotto/dp/analytic_gaussian.h"
#include "sotto/dp/rdp_accountant.h"

using namespace sotto;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double spent(double sigma, const PrivacyTarget& target) {
  RdpAccountant accountant;
  accountant.compose({sigma, Sampling::poisson, target.sampling_rate}, target.steps);
  return accountant.epsilon(target.delta);
}

const std::vector<PrivacyTarget> targets = {
    {1, 1e-5, 0.01, 1000},  {3, 1e-5, 256.0 / 60000, 14040}, {8, 1e-5, 4096.0 / 50000, 2000},
    {50, 1e-5, 0.02, 1000}, {0.01, 1e-5, 0.1, 100},          {0.1, 1e-9, 1, 1},
    {2, 0.3, 0.5, 10},      {1e-4, 1e-5, 0.001, 10},         {300, 1e-6, 0.3, 7}};

}  // namespace

TEST_CASE("calibrated noise meets the target for its steps; less noise or more steps do not") {
  for (const PrivacyTarget& target : targets) {
    CAPTURE(target.epsilon, target.delta, target.sampling_rate, target.steps);
    const double sigma = calibrate_noise_multiplier(target);
    CHECK(spent(sigma, target) <= target.epsilon);
    CHECK(spent(sigma * (1 - 1e-6), target) > target.epsilon);
    CHECK(max_steps(sigma, target) == target.steps);
    CHECK(max_steps(sigma * 0.999, target) < target.steps);
  }
}

TEST_CASE("calibrated noise is at most the published one") {
  const std::vector<std::pair<PrivacyTarget, double>> table = {
      {{1, 1e-5, 0.01, 1000}, 1.513122},
      {{3, 1e-5, 256.0 / 60000, 14040}, 1.013537},
      {{3, 1e-5, 512.0 / 60000, 4680}, 1.122887},
      {{3, 1e-5, 1024.0 / 50000, 1440}, 1.392231},
      {{1, 1e-5, 4096.0 / 50000, 875}, 9.889561},
      {{8, 1e-5, 4096.0 / 50000, 2000}, 2.467064},
      {{1, 1e-6, 0.1, 512}, 10.364128}};
  for (const auto& [target, published] : table) {
    const double sigma = calibrate_noise_multiplier(target);
    CHECK(sigma <= published + 1e-5);
    CHECK(sigma >= published * 0.995);
  }
}

TEST_CASE("the number of steps has its limits") {
  CHECK(max_steps(0, {1, 1e-5, 0.1}) == 0);
  CHECK(max_steps(0.1, {1, 1e-5, 1}) == 0);
  CHECK(max_steps(1e12, {1, 1e-5, 1e-6}) == std::int64_t{1} << 53);
}

TEST_CASE("no steps need no noise") {
  CHECK(calibrate_noise_multiplier({1, 1e-5, 0.1, 0}) == 0);
  CHECK(gaussian_noise_multiplier(1, 1e-5, 0) == 0);
}

TEST_CASE("a target out of reach or out of range is an error") {
  const double nan = std::nan("");
  CHECK_THROWS_WITH(calibrate_noise_multiplier({0.1, 1e-12, 0.1, 10}, by_rdp({2, 3})),
                    "calibrate_noise_multiplier: epsilon 0.1 at delta 1e-12 is out of reach of the "
                    "rdp accountant");
  for (const PrivacyTarget& wrong : std::vector<PrivacyTarget>{{0, 1e-5, 0.1, 1},
                                                               {-1, 1e-5, 0.1, 1},
                                                               {nan, 1e-5, 0.1, 1},
                                                               {infinity, 1e-5, 0.1, 1},
                                                               {1, 0, 0.1, 1},
                                                               {1, 1, 0.1, 1},
                                                               {1, nan, 0.1, 1},
                                                               {1, 1e-5, 0, 1},
                                                               {1, 1e-5, 1.1, 1},
                                                               {1, 1e-5, nan, 1},
                                                               {1, 1e-5, 0.1, -1}}) {
    CHECK_THROWS_AS(calibrate_noise_multiplier(wrong), std::invalid_argument);
    CHECK_THROWS_AS(max_steps(1, wrong), std::invalid_argument);
  }
  CHECK_THROWS_AS(max_steps(-1, {}), std::invalid_argument);
  CHECK_THROWS_AS(max_steps(nan, {}), std::invalid_argument);
  CHECK_THROWS_AS(calibrate_noise_multiplier({}, by_rdp({})), std::invalid_argument);
  CHECK_THROWS_AS(calibrate_noise_multiplier({}, NewAccountant()), std::invalid_argument);
}

TEST_CASE("the exact Gaussian agrees with published epsilon") {
  struct Row {
    double sigma;
    std::array<double, 3> epsilon;
  };
  const std::vector<Row> table = {{0.5, {7.581279925, 9.997256146, 12.749246400}},
                                  {0.7, {4.907861983, 6.652487890, 8.632729689}},
                                  {1, {3.138670549, 4.377178096, 5.776098383}},
                                  {2, {1.352276245, 1.993091404, 2.707606334}},
                                  {3, {0.833528102, 1.271087767, 1.754280505}},
                                  {5, {0.453920156, 0.725521751, 1.021170615}},
                                  {10, {0.197533973, 0.340669365, 0.492850365}}};
  const std::array deltas = {1e-3, 1e-5, 1e-8};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      CHECK(std::abs(gaussian_epsilon(row.sigma, deltas[i]) - row.epsilon[i]) < 1e-9);
      CHECK(gaussian_epsilon(row.sigma * 4, deltas[i], 16) ==
            Approx(gaussian_epsilon(row.sigma, deltas[i])).epsilon(1e-12));
    }
  }
}

TEST_CASE("the exact Gaussian agrees with published noise") {
  struct Row {
    double epsilon;
    std::array<double, 3> sigma;
  };
  const std::vector<Row> table = {{0.1, {17.404396203, 30.749566132, 45.937360185}},
                                  {0.5, {4.610127951, 7.031826676, 9.863533796}},
                                  {1, {2.574657019, 3.730631635, 5.100308788}},
                                  {2, {1.445239161, 1.993812446, 2.652926768}},
                                  {4, {0.823077685, 1.081161850, 1.395582684}},
                                  {8, {0.480013752, 0.600229072, 0.748394225}}};
  const std::array deltas = {1e-3, 1e-5, 1e-8};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      const double sigma = gaussian_noise_multiplier(row.epsilon, deltas[i]);
      CHECK(std::abs(sigma - row.sigma[i]) < 1e-9);
      CHECK(gaussian_delta(sigma, row.epsilon) <= deltas[i] * (1 + 1e-11));
    }
  }
  CHECK(std::abs(gaussian_noise_multiplier(1, 6.486452831e-47) - 14) < 1e-4);
}

TEST_CASE("the exact Gaussian has its limits") {
  CHECK(gaussian_delta(1, 0) == Approx(std::erf(0.5 / std::sqrt(2.0))).epsilon(1e-14));
  CHECK(gaussian_delta(50, 0) == Approx(std::erf(0.01 / std::sqrt(2.0))).epsilon(1e-12));
  CHECK(gaussian_delta(0, 3) == 1);
  CHECK(gaussian_delta(1e-3, 3) == 1);
  CHECK(gaussian_delta(1, 3, 0) == 0);
  CHECK(gaussian_epsilon(0, 1e-5) == infinity);
  CHECK(gaussian_epsilon(50, 0.01) == 0);
  CHECK(gaussian_epsilon(1, 1e-5, 0) == 0);
  CHECK(gaussian_epsilon(1, 1e-300) > gaussian_epsilon(1, 1e-290));
  CHECK_THROWS_AS(gaussian_epsilon(-1, 1e-5), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_epsilon(1, 0), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_delta(1, -1), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_delta(1, 1, -1), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_noise_multiplier(std::nan(""), 1e-5), std::invalid_argument);
}
