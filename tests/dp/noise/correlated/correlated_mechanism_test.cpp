// Noise has the covariance of its strategy and a scale that covers every change by one record.
// Statistics use fixed seeds; a correct mechanism fails each check with probability under 1e-6.
#include "dp/noise/correlated/correlated_mechanism.h"

#include <cmath>

#include "autograd/ops.h"
#include "core/random/secret_random.h"
#include "dp/noise/noise_grid.h"
#include "tests/support/catch.h"
#include "tests/support/noise_plans.h"
#include "tests/support/noise_strategies.h"

namespace sotto {
namespace {

void check_covariance(const StrategyMatrix& strategy) {
  const std::int64_t steps = strategy.steps();
  Eigen::MatrixXd sums = Eigen::MatrixXd::Zero(steps, steps);
  constexpr int plans = 40;
  for (int plan = 0; plan < plans; ++plan) {
    CorrelatedMechanism mechanism(
        plan_of(strategy), SecretRandom::insecure_seeded(10 + static_cast<std::uint64_t>(plan)));
    const auto noise = noise_of(mechanism);
    for (std::int64_t s = 0; s < steps; ++s) {
      for (std::int64_t t = 0; t < steps; ++t) {
        for (std::size_t e = 0; e < elements; ++e)
          sums(s, t) += noise[std::size_t(s)][e] * noise[std::size_t(t)][e];
      }
    }
  }
  const double stddev = 1.7 * bound * strategy.sensitivity({.min_separation = 3});
  constexpr double count = plans * elements;
  const Eigen::MatrixXd inverse = dense(strategy).inverse();
  const Eigen::MatrixXd expected = stddev * stddev * inverse * inverse.transpose();
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t t = 0; t < steps; ++t) {
      const double error =
          std::sqrt((expected(s, s) * expected(t, t) + std::pow(expected(s, t), 2)) / count);
      CHECK(std::abs(sums(s, t) / count - expected(s, t)) < 6 * error);
    }
  }
}

TEST_CASE("the noise of a plan has the covariance C^-1 C^-T, times its scale squared") {
  for (const StrategyMatrix& strategy : strategies(6)) check_covariance(strategy);
}

// docs/appendix/proofs-correlated-noise.md: with spacing g, d elements, n steps, the clipped sum's
// sensitivity D and the factor's S, one record changes the noisy sums by at most
// S (D + g sqrt d) + 3/2 g sqrt(d n).
TEST_CASE("the noise is scaled by the maximum change by one record, rounding included") {
  for (const std::int64_t steps : {1, 30, 3000}) {
    for (const StrategyMatrix& strategy : strategies(steps)) {
      for (const double d : {1.0, 1e4, 1e8}) {
        const double factor = strategy.sensitivity({.min_separation = 3});
        NoisePlan plan = plan_of(strategy);
        const auto change = [&](double spacing, double rows) {
          return factor * (bound + spacing * std::sqrt(d)) + 1.5 * spacing * std::sqrt(d * rows);
        };
        const NoiseGrid grid = noise_grid(plan, bound, static_cast<std::int64_t>(d));
        const double noise = grid.stddev * grid.spacing / 1.7;
        CHECK(noise >= change(grid.spacing, static_cast<double>(steps)));
        CHECK(noise <= factor * bound * (1 + 0x1p-19));
        plan.sampling = Sampling::cyclic_poisson;
        plan.min_separation = steps;
        const NoiseGrid cyclic = noise_grid(plan, bound, static_cast<std::int64_t>(d));
        CHECK(cyclic.stddev * cyclic.spacing <= grid.stddev * grid.spacing);
      }
    }
  }
}

TEST_CASE("the stated standard deviation is that of the step's noise") {
  for (const StrategyMatrix& strategy : strategies(8)) {
    Fixture f;
    CorrelatedMechanism mechanism(plan_of(strategy), SecretRandom::insecure_seeded(3));
    PlannedEpochs sampler(Sampling::planned, 8, 3);
    const Eigen::MatrixXd inverse = dense(strategy).inverse();
    for (std::int64_t t = 0; t < 8; ++t) {
      const double stddev = 1.7 * bound * mechanism.factor_sensitivity() * inverse.row(t).norm();
      CHECK(f.release(mechanism, sampler).noise_variance() ==
            Approx(stddev * stddev / 16).epsilon(1e-5));
    }
  }
}

TEST_CASE("elements are independent of each other") {
  CorrelatedMechanism mechanism(plan_of(StrategyMatrix(TreeFactor{}, 200)),
                                SecretRandom::insecure_seeded(4));
  const auto noise = noise_of(mechanism);
  for (const std::size_t apart : {1, 599, 600}) {
    double sum = 0, squares = 0, count = 0;
    for (const auto& now : noise) {
      for (std::size_t e = 0; e + apart < now.size(); ++e, ++count) {
        sum += now[e] * now[e + apart];
        squares += now[e] * now[e];
      }
    }
    // Steps are correlated: 200 rows count as at least 20 independent ones.
    CHECK(std::abs(sum) / squares < 6 / std::sqrt(count / 10));
  }
}

// The release of the third step for a sum of `scale` [0.3, -0.2].
std::vector<double> third_release(double scale) {
  Parameter w(zeros({2}, Dtype::f64));
  Clipper clipper({{{&w}, bound}});
  CorrelatedMechanism mechanism(banded_plan(), SecretRandom::insecure_seeded(8));
  Ledger ledger;
  PlannedEpochs sampler(Sampling::planned, 6, 3, {17});
  std::vector<double> values;
  for (int t = 0; t < 3; ++t) {
    Tape tape({.private_data = true});
    const Var x = tape.input(Tensor::from({0.3 * scale, -0.2 * scale}, {1, 2}, Dtype::f64));
    SampledBatch draw = sampler.draw();
    clipper.begin(draw);
    clipper.add(tape, sum_per_sample(mul(x, tape.use(w))));
    const NoisyGradient released = mechanism.release(clipper.finish(std::move(draw)), ledger);
    values = released.gradients()[0].second.to_vector<double>();
  }
  return values;
}

TEST_CASE("the release is the sum plus noise that does not depend on it") {
  const std::vector<double> none = third_release(0), some = third_release(1);
  CHECK(std::abs(none[0]) > 1e-3);
  CHECK((some[0] - none[0]) * 4 == Approx(0.3).epsilon(0x1p-20));
  CHECK((some[1] - none[1]) * 4 == Approx(-0.2).epsilon(0x1p-20));
}

TEST_CASE("the description names strategy, plan and key") {
  CHECK(CorrelatedMechanism(banded_plan()).description() ==
        "Gaussian, correlated by a Toeplitz of 2 bands over 6 steps, noise multiplier 1.7 of the "
        "whole plan with a separation of 3 (exact sampler on a grid, keyed by the operating "
        "system)");
  CHECK(
      CorrelatedMechanism(plan_of(StrategyMatrix(TreeFactor{}, 9)),
                          SecretRandom::insecure_seeded(1))
          .description() ==
      "Gaussian, correlated by a tree over 9 steps, noise multiplier 1.7 of the whole plan with a "
      "separation of 3 (exact sampler on a grid, keyed by a SEED: NOT PRIVATE)");
}

}  // namespace
}  // namespace sotto
