// File tags: [sanitized]
#include "dp/accounting/rdp/rdp.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double relative_error(double value, double truth) { return std::abs(value / truth - 1); }

struct Golden {
  double q, sigma, order, rdp;
};

}  // namespace

TEST_CASE("the divergence agrees with high-precision quadrature") {
  // Computed by tanh-sinh quadrature of the definition with 32 to 45 digits.
  const std::vector<Golden> table = {
      {1e-09, 1, 1.5, 1.2887113696029477e-18},
      {1e-09, 0.1, 1.5, 12.83347312183276},
      {1e-09, 0.1, 2.5, 90.461223605089301},
      {1e-06, 1000, 1.01, 5.0500025249958418e-19},
      {1e-09, 1000, 3.7, 1.8500009250003118e-24},
      {0.01, 1.1, 1.0001, 6.3161658013631925e-5},
      {0.5, 4, 1.5, 0.011902091926305566},
      {0.9, 2, 1.5, 0.15371663095863049},
      {0.999, 0.5, 1.3, 2.5969736937357034},
      {0.01, 0.3, 5.5, 24.927014217125668},
      {0.3, 1.3, 20.25, 4.7246351607915656},
      {0.0001, 0.1, 1.01, 0.0050117789797371572},
      {0.1, 0.1, 1.2, 46.184918492776467},
      {0.999999, 1, 2.5, 1.2499987052165375},
      {0.01, 10, 300.5, 0.00015569056907336944},
      {0.001, 3, 900.5, 43.112342948735627},
      {0.001, 1000, 9999.5, 4.9998024356203018e-9},
      {0.2, 0.01, 1.5, 7495.1716862626974},
      {0.5, 1.25, 1.75, 0.16956808613163236},
      {0.02, 1.43, 6.6, 0.00089534491821869581},
      {0.02, 1.43, 256, 58.66738363731713},
      {1e-09, 0.1, 10000.0, 499979.27466162916},
      {0.5, 0.1, 1.05, 39.342633320749691},
      {1e-09, 0.5, 1.5, 4.019859220197029e-17},
      // Here the mass lies where sampling sets in, near the zeros of w.
      {0.018, 0.5, 1.5, 0.0075854267993107576},
      {0.1, 0.3, 1.2, 0.62681848464051104},
      {0.0001, 0.3, 1.5, 7.1720779251184696e-5},
      {0.02, 0.7, 2.5, 0.0038679496454889893},
      {0.1, 1.5, 1.7, 0.004666460396665246},
      {0.05, 2, 1.3, 0.00045675626476699161},
      {0.3, 0.2, 1.1, 5.4752768211486233},
      {1e-05, 0.3, 1.5, 1.4536691218192575e-6},
  };
  for (const Golden& row : table) {
    CAPTURE(row.q, row.sigma, row.order);
    CHECK(relative_error(rdp_sampled_gaussian(row.q, row.sigma, row.order), row.rdp) < 1e-13);
  }
}

TEST_CASE("the divergence agrees with published values where these are true") {
  const std::vector<Golden> table = {{0.5, 4, 1.5, 0.0119020919263056},
                                     {0.1, 1, 1.1, 0.00809856846807384},
                                     {0.1, 1, 1.5, 0.0117345921966852},
                                     {0.1, 1, 2.5, 0.0235037272610031},
                                     {0.1, 2, 1.25, 0.00173765484949818},
                                     {0.2, 0.5, 1.9, 0.953349480827118},
                                     {0.9, 2, 1.5, 0.15371663095863},
                                     {0.9, 2, 3.5, 0.372480990117132},
                                     {0.5, 4, 6.5, 0.0559566212400585},
                                     {0.01, 1.1, 9.6, 0.000746054432188729},
                                     {0.5, 4, 2, 0.0159950097961462},
                                     {0.01, 1, 2, 1.7181342207455162e-4},
                                     {0.01, 1, 8, 8.93643907606041e-4},
                                     {0.01, 1, 16, 3.087850783696245},
                                     {0.01, 1, 64, 27.32173187455178},
                                     {256.0 / 60000, 1.1, 9, 1.1164726515510453e-4},
                                     {256.0 / 60000, 1.1, 18, 1.6602946084469463},
                                     {0.1, 2, 40, 2.638913798807743},
                                     {0.5, 4, 20, 0.22072629674410488}};
  for (const Golden& row : table) {
    CAPTURE(row.q, row.sigma, row.order);
    CHECK(relative_error(rdp_sampled_gaussian(row.q, row.sigma, row.order), row.rdp) < 1e-12);
  }
}

// The sum over binomial terms and the quadrature share only the formula.
TEST_CASE("an integer order and the next double agree") {
  for (const double q : {1e-9, 1e-4, 0.01, 0.1, 0.5, 0.9, 0.9999}) {
    for (const double sigma : {0.1, 0.3, 0.7, 1.0, 1.25, 1.43, 2.0, 4.0, 20.0, 1000.0}) {
      for (const double order : {2.0, 3.0, 5.0, 8.0, 17.0, 64.0, 256.0}) {
        CAPTURE(q, sigma, order);
        const double sum = rdp_sampled_gaussian(q, sigma, order);
        const double integral = rdp_sampled_gaussian(q, sigma, std::nextafter(order, infinity));
        CHECK(sum > 0);
        CHECK(relative_error(integral, sum) < 2e-13);
      }
    }
  }
}

TEST_CASE("the divergence has its closed forms at the ends") {
  for (const double order : {1.01, 2.0, 7.5, 10000.0}) {
    CHECK(rdp_sampled_gaussian(0, 1, order) == 0);
    CHECK(rdp_sampled_gaussian(1, 3, order) == order / 18);
    CHECK(rdp_sampled_gaussian(0.5, 0, order) == infinity);
    CHECK(relative_error(rdp_sampled_gaussian(1 - 1e-15, 3, order), order / 18) < 1e-10);
  }
}

TEST_CASE("the divergence grows with the order and the rate and falls with the noise") {
  const std::vector<double> sigmas = {1000, 30, 3, 1, 0.5, 0.1, 0.02, 0.005, 0.004, 0.001, 1e-6};
  const std::vector<double> orders = {1.0001, 1.01, 1.5, 2, 3.3, 9.7, 40, 257, 300.5, 1e4};
  for (const double q : {1e-9, 1e-3, 0.3}) {
    for (std::size_t s = 0; s < sigmas.size(); ++s) {
      double previous = 0;
      for (const double order : orders) {
        CAPTURE(q, sigmas[s], order);
        const double rdp = rdp_sampled_gaussian(q, sigmas[s], order);
        CHECK(rdp > previous);
        CHECK(std::isfinite(rdp));
        CHECK(rdp <= rdp_sampled_gaussian(3 * q, sigmas[s], order) * (1 + 1e-14));
        if (s > 0) CHECK(rdp > rdp_sampled_gaussian(q, sigmas[s - 1], order));
        CHECK(rdp <= order / (2 * sigmas[s] * sigmas[s]) * (1 + 1e-14));
        previous = rdp;
      }
    }
  }
}

TEST_CASE("little noise at a fractional order gives an upper bound") {
  for (const double order : {1.3, 2.5, 7.25}) {
    const double bound = rdp_sampled_gaussian(0.2, 0.004999, order);
    const double truth = rdp_sampled_gaussian(0.2, 0.005, order);
    CHECK(bound > truth);
    CHECK(bound < 3 * truth);
  }
}

TEST_CASE("extreme arguments neither overflow nor hang") {
  CHECK(rdp_sampled_gaussian(1e-300, 1, 2.5) == 0);
  CHECK(rdp_sampled_gaussian(0.5, 1e200, 2.5) == 0);
  CHECK(std::isfinite(rdp_sampled_gaussian(0.5, 1e-100, 2.5)));
  CHECK(std::isfinite(rdp_sampled_gaussian(1e-9, 0.1, 1e6)));
  CHECK(rdp_sampled_gaussian(1e-300, 0.02, 3.5) > 100);
}

TEST_CASE("orders, rates and noise out of range are errors") {
  const double nan = std::nan("");
  CHECK_THROWS_WITH(rdp_sampled_gaussian(0.1, 1, 1), "rdp: order 1 is not in (1, 1000000]");
  CHECK_THROWS_AS(rdp_sampled_gaussian(0.1, 1, nan), std::invalid_argument);
  CHECK_THROWS_AS(rdp_sampled_gaussian(0.1, 1, infinity), std::invalid_argument);
  CHECK_THROWS_AS(rdp_sampled_gaussian(-0.1, 1, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_sampled_gaussian(1.1, 1, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_sampled_gaussian(nan, 1, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_sampled_gaussian(0.1, -1, 2), std::invalid_argument);
  CHECK_THROWS_AS(rdp_sampled_gaussian(0.1, nan, 2), std::invalid_argument);
}

TEST_CASE("a curve of constant divergence converts to published numbers") {
  std::vector<double> orders;
  for (int order = 2; order <= 32; ++order) orders.push_back(order);
  const std::vector<double> rdp(orders.size(), 1.1);
  const RdpBound epsilon = rdp_epsilon(orders, rdp, 1e-5);
  CHECK(epsilon.value == Approx(1.32783806176).epsilon(1e-11));
  CHECK(epsilon.order == 32);
  CHECK(rdp_delta(orders, rdp, epsilon.value).value == Approx(1e-5).epsilon(1e-11));
}

TEST_CASE("the default orders increase from near 1 to 10,000") {
  const std::vector<double>& orders = default_orders();
  CHECK(orders.front() == 1.01);
  CHECK(orders.back() == 10000);
  for (std::size_t i = 1; i < orders.size(); ++i) CHECK(orders[i] > orders[i - 1]);
}
