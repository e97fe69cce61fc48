// Bounds that follow a quantile, and private statistics: their releases, their noise, and their
// ledger entries. A correct mechanism fails a statistical check with probability under 1e-6.
#include "dp/clipping/adaptive_clipping.h"
#include "autograd/per_sample/grouping.h"

#include <cmath>

#include "autograd/ops.h"
#include "core/random/secret_random.h"
#include "dp/accounting/calibration.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// Units with gradients of chosen norms: the loss of unit n is norms[n] times a weight.
struct Fixture {
  Parameter a{zeros({1})}, b{zeros({1})};
  Clipper clipper{{{{&a}, 1.0}, {{&b}, 2.0}}};
  Ledger ledger;

  // Releases a batch of all units; a's norms are `norms`, b's are twice that.
  NoisyGradient release(const std::vector<float>& norms, GaussianMechanism& mechanism,
                        double unclipped_count_stddev) {
    const std::int64_t n = std::ssize(norms);
    FullBatchSampler sampler(n);
    sampler.resume_from(ledger.next_draw());
    Tape tape({.private_data = true});
    const Var x = tape.input(Tensor::from(norms, {n, 1}));
    const Var loss = sum_per_sample(x * tape.use(a)) + sum_per_sample((x + x) * tape.use(b));
    clipper.add(tape, loss);
    return mechanism.release(clipper.finish(sampler.draw()), ledger, {}, unclipped_count_stddev);
  }
};

TEST_CASE("each group's count is of the units within its own bound") {
  Fixture f;
  GaussianMechanism mechanism(1e-3, SecretRandom::insecure_seeded(1));
  // Bounds 1 and 2 for norms x and 2x: both groups have two units within and three beyond.
  const NoisyGradient released = f.release({0.5F, 1.0F, 1.5F, 3.0F, 9.0F}, mechanism, 1e-2);
  REQUIRE(released.unclipped_fraction().size() == 2);
  for (const double part : released.unclipped_fraction()) CHECK(part == Approx(0.4).margin(0.02));
  f.clipper.set_bounds({10, 4});
  const NoisyGradient second = f.release({0.5F, 1.0F, 1.5F, 3.0F, 9.0F}, mechanism, 1e-2);
  CHECK(second.unclipped_fraction()[0] == Approx(1).margin(0.02));
  CHECK(second.unclipped_fraction()[1] == Approx(0.6).margin(0.02));
  CHECK(f.release({0.5F, 1.0F, 1.5F, 3.0F, 9.0F}, mechanism, 0).unclipped_fraction().empty());
}

TEST_CASE("a unit that is not a number is beyond every bound") {
  Fixture f;
  GaussianMechanism mechanism(1e-3, SecretRandom::insecure_seeded(1));
  const NoisyGradient released = f.release({NAN, 0.5F, INFINITY, 0.5F}, mechanism, 1e-2);
  for (const double part : released.unclipped_fraction()) CHECK(part == Approx(0.5).margin(0.02));
}

TEST_CASE("the noise of gradient and counts has the standard deviations of the split") {
  Fixture f;
  constexpr double total = 0.5, unclipped_count_stddev = 0.6;
  GaussianMechanism mechanism(total, SecretRandom::insecure_seeded(2));
  const double count_sensitivity = std::sqrt(2.0) / 2;
  const double gradient = other_noise_multiplier(total, unclipped_count_stddev / count_sensitivity);
  double gradient_square = 0, count_square = 0;
  constexpr int releases = 4000;
  const std::vector<float> nobody_within(8, 1e3F);
  double variance = 0;
  for (int i = 0; i < releases; ++i) {
    const NoisyGradient released = f.release(nobody_within, mechanism, unclipped_count_stddev);
    variance = released.noise_variance();
    // All gradients are clipped to one value.
    const double value = to_dtype(released.gradients()[0].second, Dtype::f64).item();
    gradient_square += (value - 1) * (value - 1) / releases;
    const double part = released.unclipped_fraction()[0];
    count_square += part * part / releases;
  }
  const double sensitivity = std::sqrt(1.0 + 4.0);
  const double expected = gradient * sensitivity / 8;
  CHECK(variance == Approx(expected * expected));
  const double error = 5 * std::sqrt(2.0 / releases);
  CHECK(std::abs(gradient_square / (expected * expected) - 1) < error);
  CHECK(std::abs(count_square / (unclipped_count_stddev * unclipped_count_stddev / 64) - 1) <
        error);
  REQUIRE(f.ledger.events().size() == 1);
  CHECK(f.ledger.events()[0].first.noise_multiplier == total);
}

TEST_CASE("too little noise on the counts is refused before anything is recorded") {
  Fixture f;
  GaussianMechanism mechanism(1, SecretRandom::insecure_seeded(2));
  CHECK_THROWS_AS(f.release({1.0F}, mechanism, 0.7), std::invalid_argument);
  f.clipper.discard();
  CHECK_THROWS_AS(f.release({1.0F}, mechanism, -1), std::invalid_argument);
  CHECK(f.ledger.releases() == 0);
}

TEST_CASE("bounds settle at the quantile of the norms") {
  const AdaptiveClipping adaptive{.quantile = 0.25, .learning_rate = 0.2};
  // Norms uniform on [0, 8]: the fraction within a bound C is C / 8.
  std::vector<double> bounds = {0.01, 100};
  for (int step = 0; step < 300; ++step) {
    std::vector<double> within;
    for (const double bound : bounds) within.push_back(std::min(1.0, bound / 8));
    bounds = adaptive.next(bounds, within);
  }
  for (const double bound : bounds) CHECK(bound == Approx(2).epsilon(1e-3));
}

TEST_CASE("the update is Andrew's, and noise moves a bound by a bounded factor") {
  const AdaptiveClipping adaptive{.quantile = 0.5, .learning_rate = 0.3, .max_bound = 10};
  CHECK(adaptive.next({2}, {0.9})[0] == Approx(2 * std::exp(-0.3 * 0.4)));
  CHECK(adaptive.next({2}, {50})[0] == Approx(2 * std::exp(-0.15)));
  CHECK(adaptive.next({2}, {-50})[0] == Approx(2 * std::exp(0.15)));
  CHECK(adaptive.next({10}, {0})[0] == 10);
  CHECK(adaptive.next({1e-6}, {1})[0] == 1e-6);
  CHECK(adaptive.unclipped_count_stddev_for(256) == Approx(12.8));
  CHECK(AdaptiveClipping{.unclipped_count_stddev = 3}.unclipped_count_stddev_for(256) == 3);
}

TEST_CASE("settings of adaptive clipping out of range are named") {
  CHECK_NOTHROW(AdaptiveClipping{}.validate());
  for (const AdaptiveClipping& wrong :
       {AdaptiveClipping{.quantile = 1.1}, AdaptiveClipping{.quantile = NAN},
        AdaptiveClipping{.learning_rate = 0}, AdaptiveClipping{.unclipped_count_stddev = 0},
        AdaptiveClipping{.min_bound = 0}, AdaptiveClipping{.min_bound = 2, .max_bound = 1},
        AdaptiveClipping{.max_bound = INFINITY}}) {
    CHECK_THROWS_AS(wrong.validate(), std::invalid_argument);
  }
  CHECK_THROWS_AS(AdaptiveClipping{}.next({1, 1}, {0.5}), std::invalid_argument);
}

TEST_CASE("a unit without rows counts neither as within a bound nor as beyond it") {
  Fixture f;
  GaussianMechanism mechanism(1e-3, SecretRandom::insecure_seeded(1));
  FullBatchSampler sampler(4);
  f.clipper.add_zeros(4);
  const NoisyGradient released =
      mechanism.release(f.clipper.finish(sampler.draw()), f.ledger, {}, 1e-2);
  for (const double part : released.unclipped_fraction()) CHECK(part == Approx(0.5).margin(0.02));
}

TEST_CASE("a unit without rows counts for nothing among others, too") {
  Fixture f;
  GaussianMechanism mechanism(1e-3, SecretRandom::insecure_seeded(1));
  FullBatchSampler sampler(4);
  Tape tape({.private_data = true});
  const Var x = tape.input(Tensor::from(std::vector<float>{9, 0.5F, 9}, {3, 1}));
  const Var loss = sum_per_sample(x * tape.use(f.a)) + sum_per_sample((x + x) * tape.use(f.b));
  // The first unit is beyond both bounds, the second within, two have no rows.
  const Grouping grouping{.unit_of_row = {0, 1, 0}, .units = 4};
  f.clipper.add(tape, loss, &grouping);
  const NoisyGradient released =
      mechanism.release(f.clipper.finish(sampler.draw()), f.ledger, {}, 1e-2);
  for (const double part : released.unclipped_fraction()) CHECK(part == Approx(0.5).margin(0.02));
}

TEST_CASE("bounds change between batches only") {
  Fixture f;
  CHECK_THROWS_AS(f.clipper.set_bounds({1}), std::invalid_argument);
  CHECK_THROWS_AS(f.clipper.set_bounds({1, 0}), std::invalid_argument);
  CHECK_THROWS_AS(f.clipper.set_bounds({1, NAN}), std::invalid_argument);
  f.clipper.add_zeros(3);
  CHECK_THROWS_AS(f.clipper.set_bounds({1, 1}), std::invalid_argument);
  f.clipper.discard();
  f.clipper.set_bounds({3, 4});
  CHECK(f.clipper.sensitivity() == Approx(5));
}

TEST_CASE("means of bounded statistics are released with their noise, and recorded") {
  Ledger ledger;
  GaussianMechanism mechanism(2, SecretRandom::insecure_seeded(5));
  FullBatchSampler sampler(400);
  double first = 0, second = 0, square = 0;
  constexpr int releases = 2000;
  for (int i = 0; i < releases; ++i) {
    StatisticSum sum({{0, 1}, {-10, 30}});
    // Half of the units are right; losses beyond the range are clamped to its ends.
    for (int unit = 0; unit < 400; ++unit)
      sum.add(std::vector<double>{unit % 2 + 0.0, unit < 300 ? 1e9 : -1e9});
    const std::vector<double> means = mechanism.release(sum.finish(sampler.draw()), ledger);
    first += means[0] / releases;
    second += means[1] / releases;
    square += (means[0] - 0.5) * (means[0] - 0.5) / releases;
  }
  // The noise of a mean: half the range times multiplier * sqrt(statistics) / units.
  const double stddev = 0.5 * 2 * std::sqrt(2.0) / 400;
  CHECK(std::abs(first - 0.5) < 5 * stddev / std::sqrt(releases));
  CHECK(std::abs(second - 20) < 5 * 40 * stddev / std::sqrt(releases));
  CHECK(std::abs(square / (stddev * stddev) - 1) < 5 * std::sqrt(2.0 / releases));
  REQUIRE(ledger.events().size() == 1);
  CHECK(ledger.events()[0] == std::pair<Event, std::int64_t>(Event{2}, releases));
}

TEST_CASE("a statistic that is not a number moves nothing, and mistakes are errors") {
  CHECK(StatisticRange{2, 6}.to_unit(NAN) == 0);
  CHECK(StatisticRange{2, 6}.to_unit(INFINITY) == 1);
  CHECK(StatisticRange{2, 6}.to_unit(3) == Approx(-0.5));
  CHECK(StatisticRange{2, 6}.from_unit(-0.5) == Approx(3));
  CHECK_THROWS_AS(StatisticSum({}), std::invalid_argument);
  CHECK_THROWS_AS(StatisticSum({{1, 1}}), std::invalid_argument);
  CHECK_THROWS_AS(StatisticSum({{0, INFINITY}}), std::invalid_argument);
  StatisticSum sum({{0, 1}});
  CHECK_THROWS_AS(sum.add(std::vector<double>{1, 2}), std::invalid_argument);
  FullBatchSampler sampler(3);
  CHECK_THROWS_AS(sum.finish(sampler.draw()), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
