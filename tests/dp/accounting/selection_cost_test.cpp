// The bound on a private selection against the exact distribution of its output, summed or
// integrated without it: for small discrete mechanisms, and for Gaussian ones.
// File tags: [sanitized]
#include "dp/accounting/selection_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

using Masses = std::vector<double>;

const std::vector<TruncatedNegativeBinomial> distributions = {
    {1, 0.1}, {0, 0.05}, {0.5, 0.3}, {-0.5, 0.02}, {2, 0.25}};

double hockey_stick(const Masses& p, const Masses& q, double epsilon) {
  double sum = 0;
  for (std::size_t y = 0; y < p.size(); ++y) sum += std::max(0.0, p[y] - std::exp(epsilon) * q[y]);
  return sum;
}

// The profile of one run that releases a value with masses p on one data set and q on the other.
class DiscreteMechanism final : public Accountant {
 public:
  DiscreteMechanism(Masses p, Masses q)
      : Accountant(AccountantKind::pld, NeighboringRelation::add_or_remove_one),
        p_(std::move(p)),
        q_(std::move(q)) {}

 private:
  void charge(const Event&, std::int64_t) override {}
  double charged_epsilon(double delta) const override {
    double low = 0, high = 60;
    while (high - low > 1e-12) {
      const double middle = (low + high) / 2;
      (charged_delta(middle) <= delta ? high : low) = middle;
    }
    return high;
  }
  double charged_delta(double epsilon) const override {
    return std::max(hockey_stick(p_, q_, epsilon), hockey_stick(q_, p_, epsilon));
  }

  Masses p_, q_;
};

AccountantFactory factory(const Masses& p, const Masses& q) {
  return [=] { return std::make_unique<DiscreteMechanism>(p, q); };
}

// The exact masses of the best of K values, where values are ordered by `order`, worst first:
// sum_k P[K = k] (P[all <= y]^k - P[all < y]^k).
Masses best_of(const Masses& p, const std::vector<std::size_t>& order,
               const TruncatedNegativeBinomial& runs) {
  constexpr std::int64_t all = 3000;
  Masses masses(p.size());
  double below = 0;
  for (const std::size_t y : order) {
    const double up_to = std::min(1.0, below + p[y]);
    double probability = runs.probability(1), low = below, high = up_to;
    for (std::int64_t k = 1; k <= all; ++k) {
      masses[y] += probability * (high - low);
      low *= below;
      high *= up_to;
      const auto real = static_cast<double>(k);
      probability *= (1 - runs.gamma) * (real + runs.eta) / (real + 1);
    }
    below = up_to;
  }
  return masses;
}

// The largest exact delta / bound over orders of the values, directions and epsilons.
double largest_ratio(const Masses& p, const Masses& q, const TruncatedNegativeBinomial& runs) {
  const AccountantFactory one = factory(p, q);
  const SelectionCost cost = selection_cost({.runs = runs, .run = {{Event{1}, 1}}}, one);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  double largest = 0;
  do {
    const Masses a = best_of(p, order, runs), b = best_of(q, order, runs);
    for (double epsilon = cost.epsilon; epsilon < cost.epsilon + 4; epsilon += 0.05) {
      const double exact = std::max(hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon));
      const double bound = cost.runs * one()->delta(epsilon - cost.epsilon);
      if (exact > 1e-11) largest = std::max(largest, exact / bound);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return largest;
}

Masses random_masses(std::mt19937_64& random, std::size_t count) {
  std::uniform_real_distribution<double> uniform(-6, 0);
  Masses masses(count);
  for (double& mass : masses) mass = std::exp(uniform(random));
  const double sum = std::accumulate(masses.begin(), masses.end(), 0.0);
  for (double& mass : masses) mass /= sum;
  return masses;
}

}  // namespace

TEST_CASE("the best of several randomized responses is as private as told, summed exactly") {
  for (const TruncatedNegativeBinomial& runs : distributions) {
    for (const double epsilon : {0.1, 1.0, 3.0}) {
      CAPTURE(runs.eta, runs.gamma, epsilon);
      const double p = 1 / (1 + std::exp(-epsilon));
      CHECK(largest_ratio({p, 1 - p}, {1 - p, p}, runs) <= 1);
      // With a failure of probability 1e-3 that tells the data set: only then delta is above 0.
      CHECK(largest_ratio({0.999 * p, 0.999 * (1 - p), 1e-3, 0},
                          {0.999 * (1 - p), 0.999 * p, 0, 1e-3}, runs) <= 1);
    }
  }
}

TEST_CASE("the best of several random discrete mechanisms is as private as told", "[gate]") {
  std::mt19937_64 random(3);
  double closest = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const Masses p = random_masses(random, 4), q = random_masses(random, 4);
    for (const TruncatedNegativeBinomial& runs : distributions) {
      const double ratio = largest_ratio(p, q, runs);
      CAPTURE(trial, runs.eta, runs.gamma);
      CHECK(ratio <= 1);
      closest = std::max(closest, ratio);
    }
  }
  CHECK(closest > 0.5);  // and not much less private than that
}

// The bound of Papernot and Steinke 2022, and their lower bound for eta -> 0: 2
// epsilon is needed for any number of runs that is not 1.
TEST_CASE("of pure mechanisms the best is (2 + eta) epsilon private, and not much more") {
  const double epsilon = 0.5, p = 1 / (1 + std::exp(-epsilon));
  for (const double eta : {-0.5, 0.0, 1.0}) {
    const PrivateSelection selection{.runs = TruncatedNegativeBinomial::with_mean(1000, eta),
                                     .run = {{Event{1}, 1}}};
    const double told = selection_epsilon(selection, 1e-12, factory({p, 1 - p}, {1 - p, p}));
    CHECK(told <= (2 + eta) * epsilon + 0.03);  // 0.022 of it for rounding in draws, eta -0.5
    CHECK(told >= (2 + eta) * epsilon - 0.1);
  }
}

namespace {

double density(double x, double mean) {
  return std::exp(-(x - mean) * (x - mean) / 2) / std::sqrt(2 * std::numbers::pi);
}
double above(double x, double mean) { return 0.5 * std::erfc((x - mean) / std::numbers::sqrt2); }

// f', the derivative of the generating function of K, at 1 - p: as a sum, not by its closed form.
double slope(const TruncatedNegativeBinomial& runs, double p) {
  double sum = 0, probability = runs.probability(1), power = 1;
  for (double k = 1; k < 600; ++k) {
    sum += k * probability * power;
    power *= 1 - p;
    probability *= (1 - runs.gamma) * (k + runs.eta) / (k + 1);
  }
  return sum;
}

// The density of the largest (or smallest) of K draws from N(mean, 1), on a grid.
std::vector<double> best_density(const TruncatedNegativeBinomial& runs, double mean, bool largest,
                                 double low, double step, int points) {
  std::vector<double> values;
  for (int i = 0; i < points; ++i) {
    const double y = low + step * i, p = above(y, mean);
    values.push_back(density(y, mean) * slope(runs, largest ? p : 1 - p));
  }
  return values;
}

}  // namespace

TEST_CASE("the best of several Gaussian releases is as private as told, integrated exactly") {
  constexpr double mu = 0.7, low = -9, step = 0.01;
  constexpr int points = 1900;
  for (const TruncatedNegativeBinomial& runs : distributions) {
    if (runs.gamma < 0.05) continue;  // slope() ends too early
    const PrivateSelection selection{.runs = runs, .run = {{Event{1 / mu}, 1}}};
    const SelectionCost cost = selection_cost(selection, accountant_factory());
    for (const bool largest : {true, false}) {
      const auto a = best_density(runs, 0, largest, low, step, points);
      const auto b = best_density(runs, mu, largest, low, step, points);
      CHECK(step * std::accumulate(a.begin(), a.end(), 0.0) == Approx(1).epsilon(1e-4));
      for (double epsilon = cost.epsilon; epsilon < cost.epsilon + 3; epsilon += 0.25) {
        const double exact =
            step * std::max(hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon));
        CAPTURE(runs.eta, runs.gamma, largest, epsilon);
        CHECK(exact <= 1.001 * cost.runs * gaussian_delta(1 / mu, epsilon - cost.epsilon));
      }
    }
  }
}

TEST_CASE("a selection composed with another release is as private as told, integrated exactly") {
  constexpr double mu = 0.6, nu = 0.8, low = -8, step = 0.05;
  constexpr int points = 340;
  const TruncatedNegativeBinomial runs{1, 0.2};
  const Event run{1 / mu}, other{1 / nu};
  const auto a = best_density(runs, 0, true, low, step, points);
  const auto b = best_density(runs, mu, true, low, step, points);
  Masses p, q;
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) {
      const double z = low + step * j;
      p.push_back(step * step * a[static_cast<std::size_t>(i)] * density(z, 0));
      q.push_back(step * step * b[static_cast<std::size_t>(i)] * density(z, nu));
    }
  }
  PldAccountant accountant;
  accountant.charge_selection(selection_cost({runs, {{run, 1}}}, accountant_factory()));
  accountant.compose(run);
  accountant.compose(other);
  for (const double epsilon : {2.0, 3.0, 4.0, 5.0}) {
    CAPTURE(epsilon);
    const double exact = std::max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon));
    CHECK(exact <= 1.001 * accountant.delta(epsilon));
  }
  for (const double delta : {1e-2, 1e-4}) {
    const double epsilon = accountant.epsilon(delta);
    CHECK(accountant.delta(epsilon) == Approx(delta).epsilon(1e-3));
    CHECK(std::max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) <= 1.001 * delta);
    CHECK(accountant.epsilon(delta, Bound::lower) == 0);
  }
}

TEST_CASE("a selection of trainings costs less than the sum of as many, and more than one") {
  const EventCounts run = {{{1.1, Sampling::poisson, 0.01}, 1000}};
  for (const AccountantKind kind : {AccountantKind::pld, AccountantKind::rdp}) {
    const AccountantFactory make = accountant_factory(kind);
    const double best =
        selection_epsilon({TruncatedNegativeBinomial::with_mean(10), run}, 1e-5, make);
    const auto spent = [&](std::int64_t times) {
      auto accountant = make();
      accountant->compose(run.front().first, 1000 * times);
      return accountant->epsilon(1e-5);
    };
    CHECK(best > spent(1));
    CHECK(best < spent(10));
  }
}

TEST_CASE("an accountant takes one selection, and none below the cost of a run") {
  PldAccountant accountant;
  CHECK_THROWS_AS(accountant.charge_selection({.epsilon = 1, .runs = 1}), std::invalid_argument);
  CHECK_THROWS_AS(accountant.charge_selection({.epsilon = -1, .runs = 2}), std::invalid_argument);
  accountant.charge_selection({.epsilon = 0.5, .runs = 2});
  CHECK(accountant.epsilon(1e-5) == 0.5);
  CHECK(accountant.delta(0.4) == 1);
  CHECK_THROWS_AS(accountant.charge_selection({.epsilon = 1, .runs = 2}), std::invalid_argument);
}

}  // namespace sotto
