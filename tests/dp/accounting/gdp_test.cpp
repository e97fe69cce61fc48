// File tags: [sanitized]
#include "dp/accounting/gdp.h"

#include <cmath>
#include <vector>

#include "dp/accounting/pld/pld_accountant.h"
#include "tests/support/catch.h"

using namespace sotto;

TEST_CASE("the central limit agrees with published numbers") {
  struct Row {
    double q, sigma;
    std::int64_t steps;
    double delta, mu, epsilon;
  };
  const std::vector<Row> table = {{256.0 / 60000, 1.1, 14040, 1e-5, 0.5731, 2.3222},
                                  {256.0 / 60000, 0.7, 10530, 1e-5, 1.1330, 5.0614},
                                  {256.0 / 29305, 0.55, 2052, 1e-5, 2.0282, 10.1715},
                                  {0.01, 0.8, 1000, 1e-5, 0.6141, 2.5095},
                                  {0.5, 5, 100, 1e-5, 1.0101, 4.4283},
                                  {0.01, 4, 10000, 1e-9, 0.2540, 1.4189}};
  for (const Row& row : table) {
    CAPTURE(row.q, row.sigma, row.steps);
    const double mu = gdp_poisson(row.q, row.sigma, row.steps);
    CHECK(std::abs(mu - row.mu) < 6e-5);
    CHECK(std::abs(gdp_epsilon(mu, row.delta) - row.epsilon) < 6e-5);
    CHECK(gdp_delta(mu, gdp_epsilon(mu, row.delta)) == Approx(row.delta).epsilon(1e-9));
  }
}

TEST_CASE("batches of a fixed size have a larger limit") {
  CHECK(gdp_fixed_size(0.01, 1, 1000) == Approx(0.5407945346280163).epsilon(1e-12));
  CHECK(gdp_fixed_size(0.05, 4, 2000) == Approx(0.6215260384973572).epsilon(1e-12));
  for (const double sigma : {0.5, 1.0, 10.0, 1000.0}) {
    CHECK(gdp_fixed_size(0.01, sigma, 100) > gdp_poisson(0.01, sigma, 100));
  }
  // With much noise, sqrt(2) sqrt(u^2 / 2 + ...) with u = 1/sigma equals the Poisson batch's.
  CHECK(gdp_fixed_size(0.01, 1e4, 100) == Approx(gdp_poisson(0.01, 1e4, 100)).epsilon(1e-3));
}

TEST_CASE("the central limit is no bound") {
  PldAccountant accountant;
  accountant.compose({0.7, Sampling::poisson, 256.0 / 60000}, 10530);
  const double limit = gdp_epsilon(gdp_poisson(256.0 / 60000, 0.7, 10530), 1e-5);
  CHECK(limit < 0.95 * accountant.epsilon(1e-5, Bound::lower));
}

TEST_CASE("the central limit has its ends and its errors") {
  CHECK(gdp_poisson(0, 1, 10) == 0);
  CHECK(gdp_fixed_size(0.5, 1, 0) == 0);
  CHECK(gdp_epsilon(0, 1e-5) == 0);
  CHECK(gdp_delta(0, 1) == 0);
  CHECK_THROWS_AS(gdp_poisson(1.1, 1, 10), std::invalid_argument);
  CHECK_THROWS_AS(gdp_poisson(0.1, 0, 10), std::invalid_argument);
  CHECK_THROWS_AS(gdp_fixed_size(0.1, 1, -1), std::invalid_argument);
  CHECK_THROWS_AS(gdp_epsilon(-1, 1e-5), std::invalid_argument);
  CHECK_THROWS_AS(gdp_epsilon(1, 0), std::invalid_argument);
  CHECK_THROWS_AS(gdp_delta(1, -1), std::invalid_argument);
}
