// File tags: [sanitized]
#include "dp/accounting/pld/prv_accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/make_accountant.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr auto added = NeighboringRelation::add_or_remove_one,
               replaced = NeighboringRelation::replace_one;

struct Phase {
  Event event;
  std::int64_t count = 1;
};

struct Course {
  std::vector<Phase> phases;
  double delta;
  NeighboringRelation relation = added;
};

Event poisson(double q, double sigma) { return {sigma, Sampling::poisson, q}; }

template <class AnyAccountant>
AnyAccountant composed(const Course& history) {
  AnyAccountant accountant(history.relation);
  for (const Phase& phase : history.phases) accountant.compose(phase.event, phase.count);
  return accountant;
}

const std::vector<Course> histories = {
    {{{poisson(0.01, 1.1), 1000}}, 1e-5},
    {{{poisson(0.01, 4), 10000}}, 1e-9},
    {{{poisson(0.001, 0.3), 100}}, 1e-5},
    {{{poisson(0.001, 1.3), 1}}, 1e-8},
    {{{poisson(0.2, 0.5), 3}}, 1e-2},
    {{{poisson(1e-4, 0.7), 100}}, 1e-12},
    {{{poisson(0.5, 50), 20}}, 1e-6},
    {{{poisson(0.02, 1), 500}}, 1e-15},
    {{{poisson(0.01, 1), 500}, {poisson(0.01, 2), 500}, {poisson(0.02, 0.8), 100}}, 1e-5},
    {{{poisson(0.01, 1), 500}, {{10}, 30}}, 1e-6},
    {{{poisson(0.01, 1.1), 300}}, 1e-5, replaced},
    {{{{1.5, Sampling::fixed_size, 0.02}, 100}}, 1e-5, replaced},
    {{{{1.5, Sampling::truncated_poisson, 0.01, 1, false, 1e-10}, 100}}, 1e-5},
    {{{{2, Sampling::cyclic_poisson, 0.05, 10}, 5}}, 1e-5},
};

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Golden {
  double q, sigma;
  std::int64_t steps;
  double delta, low, estimate, high;
};

}  // namespace

// Both intervals contain the truth, so they intersect.
TEST_CASE("the interval of epsilon meets that of the PLD accountant and is as narrow as documented",
          "[gate]") {
  for (const Course& history : histories) {
    const auto prv = composed<PrvAccountant>(history);
    const auto pld = composed<PldAccountant>(history);
    const Event& event = history.phases.front().event;
    CAPTURE(event.sampling_rate, event.noise_multiplier, history.delta);
    const double upper = prv.epsilon(history.delta);
    const double lower = prv.epsilon(history.delta, Bound::lower);
    const double pld_lower = pld.epsilon(history.delta, Bound::lower);
    CHECK(lower >= 0);
    CHECK(upper >= pld_lower);
    CHECK(lower <= pld.epsilon(history.delta));
    CHECK(upper - pld.epsilon(history.delta) < 0.011 * std::min(1.0, 1.1 * upper));
    CHECK(pld_lower - lower < 0.011 * std::min(1.0, 1.1 * upper));
  }
}

TEST_CASE("the interval of delta meets that of the PLD accountant") {
  for (const std::size_t i : {3, 4, 11}) {
    const Course& history = histories.at(i);
    const auto prv = composed<PrvAccountant>(history);
    const auto pld = composed<PldAccountant>(history);
    const double epsilon = 0.8 * pld.epsilon(history.delta);
    CAPTURE(history.delta, epsilon);
    const double upper = prv.delta(epsilon), lower = prv.delta(epsilon, Bound::lower);
    CHECK(lower >= 0);
    CHECK(upper >= pld.delta(epsilon, Bound::lower));
    CHECK(lower <= pld.delta(epsilon));
    CHECK(upper <= 1.3 * pld.delta(epsilon));
    CHECK(lower >= 0.7 * pld.delta(epsilon, Bound::lower));
  }
}

// The published numbers are the lower bound, the estimate and the upper bound of another
// implementation with an error of 0.01.
TEST_CASE("bounds agree with published bounds") {
  const std::vector<Golden> table = {

      {16384.0 / 50000, 21.1, 250, 1e-5, .90206, .91212, .92218},
      {0.01, 1.1, 1000, 1e-5, 1.50526, 1.51537, 1.52547},
      {0.005, 0.8, 1000, 1e-6, 1.99392, 2.00411, 2.01430},

      {0.2, 0.5, 3, 1e-2, 4.64788, 4.65903, 4.67018},
      {0.05, 1.5, 500, 1e-8, 5.15661, 5.16679, 5.17697}};
  for (const Golden& row : table) {
    CAPTURE(row.q, row.sigma, row.steps);
    const auto prv =
        composed<PrvAccountant>({{{poisson(row.q, row.sigma), row.steps}}, row.delta, added});
    const double upper = prv.epsilon(row.delta), lower = prv.epsilon(row.delta, Bound::lower);
    // a proven interval cannot be narrower
    const double proven = 0.007 * std::min(row.estimate, 1.0);
    CHECK(upper > row.estimate + proven);
    CHECK(lower < row.estimate - proven);
    CHECK(upper < row.high + 1e-3);
    CHECK(lower > row.low - 1e-3);
  }
}

// A rate just below 1 is composed numerically; the closed form of full batches is slightly above.
TEST_CASE("full batches agree with their closed form") {
  for (const double sigma : {0.5, 2.0, 30.0}) {
    const std::int64_t steps = 16;
    const double exact = gaussian_epsilon(sigma / std::sqrt(static_cast<double>(steps)), 1e-5);
    PrvAccountant full;
    full.compose({sigma}, steps);
    CHECK(full.epsilon(1e-5) == Approx(exact).epsilon(1e-9));
    PrvAccountant nearly;
    nearly.compose(poisson(1 - 1e-12, sigma), steps);
    CAPTURE(sigma, exact);
    CHECK(nearly.epsilon(1e-5) > exact);
    CHECK(nearly.epsilon(1e-5) < exact + 0.011 * std::min(exact, 1.0));
    CHECK(nearly.epsilon(1e-5, Bound::lower) < exact);
    CHECK(nearly.epsilon(1e-5, Bound::lower) > exact - 0.011 * std::min(exact, 1.0));
  }
}

TEST_CASE("losses moved to a lattice keep their mass and mean and are within their width") {
  for (const double rate : {0.01, 0.5, 1.0}) {
    for (const bool mirrored : {false, true}) {
      const DominatingPair pair({Adjacency::add_remove, rate, 0.8}, 1e-15);
      const double side = mirrored ? -1 : 1;
      double mass = 0, mean = 0, moved_mass = 0, moved_mean = 0;
      pair.integrate(pair.lowest(), pair.highest(), [&](double of_p, double loss) {
        const double part = mirrored ? of_p * std::exp(-loss) : of_p;
        mass += part;
        mean += side * part * loss;
      });
      const DiscretePld moved = mean_matched(pair, 0.05, mirrored);
      for (const auto& atom : moved.atoms) {
        moved_mass += std::exp(atom.log_mass);
        moved_mean += std::exp(atom.log_mass) * moved.loss(atom);
      }
      CAPTURE(rate, mirrored);
      CHECK(moved_mass == Approx(mass).epsilon(1e-12));
      CHECK(moved_mean == Approx(mean).epsilon(1e-10));
      CHECK(moved.width <= 0.05 * (1 + 1e-9));
      CHECK(moved.width > 0.049);
    }
  }
}

TEST_CASE("corners give bounds", "[gate]") {
  for (const Event& event : {poisson(1e-9, 0.1), poisson(0.5, 0.001)}) {
    PrvAccountant prv;
    PldAccountant pld;
    prv.compose(event, 10);
    pld.compose(event, 10);
    CAPTURE(event.sampling_rate, event.noise_multiplier);
    const double delta = 1e-15, upper = prv.epsilon(delta);
    CHECK(upper >= pld.epsilon(delta, Bound::lower));
    CHECK(upper < infinity);
    const double lower = prv.epsilon(delta, Bound::lower);
    CHECK(lower >= 0);
    CHECK(lower <= pld.epsilon(delta));
    const double total = prv.delta(0);
    CHECK(total >= pld.delta(0, Bound::lower));
    CHECK(total <= 1);
  }
}

TEST_CASE("a release without a proof is refused with the accountant that has one") {
  PrvAccountant accountant;
  CHECK(accountant.name() == "prv");
  CHECK(parse_accountant("prv") == AccountantKind::prv);
  CHECK(make_accountant(AccountantKind::prv)->kind() == AccountantKind::prv);
  CHECK_THROWS_WITH(accountant.compose({1.5, Sampling::balls_and_bins, 1, 100}),
                    "compose: the prv accountant has no proof for balls_and_bins batches and "
                    "add_or_remove_one; rdp has one");
  CHECK_THROWS_AS(accountant.compose({1.5, Sampling::fixed_size, 0.1}), std::invalid_argument);
}
