// Noise has the stated distribution, on every element and independently; the ledger records what
// ran. Statistics use fixed seeds; a correct mechanism fails each check with probability under
// 1e-6.
#include "dp/noise/gaussian_mechanism.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "core/random/secret_random.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/noise_grid.h"
#include "dp/noise/noisy_update_pass.h"
#include "dp/sampling/poisson_samplers.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

// Two parameters of a model with zero gradient: the release is noise only.
struct Fixture {
  Parameter a{zeros({60, 50})};
  Parameter b{zeros({400})};
  Clipper clipper{{{{&a, &b}, 0.5}}};
  PoissonSampler sampler{1000, 0.25, SecretRandom::insecure_seeded(1)};
  Ledger ledger;

  // One release of an empty batch, multiplied by the expected batch size.
  std::vector<double> noise(Mechanism& mechanism) {
    PoissonSampler empty(1000, 1e-12, SecretRandom::insecure_seeded(2));
    empty.resume_from(ledger.next_draw());
    SampledBatch draw = empty.draw();
    const double size = draw.expected_batch_size();
    const NoisyGradient released = mechanism.release(clipper.finish(std::move(draw)), ledger);
    std::vector<double> values;
    for (const auto& [parameter, gradient] : released.gradients()) {
      for (const float v : gradient.to_vector<float>())
        values.push_back(static_cast<double>(v) * size);
    }
    return values;
  }
};

double normal_cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

constexpr GaussianNoise both_kinds[] = {GaussianNoise::discretized, GaussianNoise::floating_point};

void check_normal(GaussianNoise kind) {
  Fixture f;
  GaussianMechanism mechanism(1.7, SecretRandom::insecure_seeded(3), kind);
  std::vector<double> all;
  for (int i = 0; i < 30; ++i) {
    for (const double v : f.noise(mechanism)) all.push_back(v / (1.7 * 0.5));
  }
  const double n = static_cast<double>(all.size());
  double moments[5] = {};
  for (const double v : all) {
    for (int k = 1; k < 5; ++k) moments[k] += std::pow(v, k) / n;
  }
  // Standard deviations of the sample moments of a standard normal: 1, sqrt 2, sqrt 15, sqrt 96,
  // over sqrt n.
  CHECK(std::abs(moments[1]) < 5 / std::sqrt(n));
  CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(moments[3]) < 5 * std::sqrt(15 / n));
  CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96 / n));
  std::sort(all.begin(), all.end());
  double gap = 0;  // Kolmogorov-Smirnov; P(gap sqrt n > 2.7) < 1e-6
  for (std::size_t i = 0; i < all.size(); ++i) {
    gap = std::max(gap, std::abs(normal_cdf(all[i]) - (static_cast<double>(i) + 0.5) / n));
  }
  CHECK(gap * std::sqrt(n) < 2.8);
}

TEST_CASE("noise is normal, with the multiplier times the sensitivity as standard deviation") {
  for (const GaussianNoise kind : both_kinds) check_normal(kind);
}

void check_independent(GaussianNoise kind) {
  Fixture f;
  GaussianMechanism mechanism(1, SecretRandom::insecure_seeded(4), kind);
  constexpr int steps = 40;
  std::vector<std::vector<double>> noise;
  for (int i = 0; i < steps; ++i) noise.push_back(f.noise(mechanism));
  const auto correlation = [](const auto& a, const auto& b, std::size_t shift, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i + shift] / 0.25;
    return sum / std::sqrt(static_cast<double>(count));
  };
  for (int i = 1; i < steps; ++i) {
    const auto& now = noise[static_cast<std::size_t>(i)];
    CHECK(std::abs(correlation(now, noise[static_cast<std::size_t>(i - 1)], 0, now.size())) < 5.5);
    CHECK(std::abs(correlation(now, now, 1, now.size() - 1)) < 5.5);
    CHECK(std::abs(correlation(now, now, 3000, 400)) < 5.5);  // the second parameter with the first
  }
}

TEST_CASE("noise is independent between parameters and between steps") {
  for (const GaussianNoise kind : both_kinds) check_independent(kind);
}

TEST_CASE("every element gets noise, rows that no sample touched included") {
  Parameter table(zeros({50, 4}));
  Clipper clipper({{{&table}, 1}});
  FullBatchSampler sampler(2);
  Tape tape({.private_data = true});
  const Var ids = tape.input(Tensor::from(std::vector<std::int64_t>{3, 3, 7, 9}, {2, 2}));
  clipper.add(tape, sum_per_sample(embedding(tape.use(table), ids)));
  GaussianMechanism mechanism(1);
  Ledger ledger;
  NoisyGradient released = mechanism.release(clipper.finish(sampler.draw()), ledger);
  for (const float v : released.gradients()[0].second.to_vector<float>()) CHECK(v != 0);
  const NoisyGradient moved = std::move(released);
  CHECK(&released.gradients() == &moved.gradients());  // none is ever empty
}

TEST_CASE("the ledger's event is what ran") {
  Fixture f;
  GaussianMechanism mechanism(0.9, SecretRandom::insecure_seeded(5));
  f.noise(mechanism);
  FullBatchSampler everybody(1000);
  everybody.resume_from(f.ledger.next_draw());
  f.clipper.discard();
  Parameter unused(zeros({1}));
  CHECK(f.ledger.events().size() == 1);
  const Event event = f.ledger.events()[0].first;
  CHECK(event.noise_multiplier == 0.9);
  CHECK(event.sampling == Sampling::poisson);
  CHECK(event.sampling_rate ==
        PoissonSampler(1000, 1e-12, SecretRandom::insecure_seeded(2)).rate());
  CHECK_FALSE(f.ledger.private_noise());
  CHECK(std::isinf(epsilon(f.ledger, 1e-5)));
}

TEST_CASE("independent noise is not accounted as that of a whole plan") {
  const GaussianMechanism mechanism(1);
  CHECK_THROWS_AS(mechanism.event({.sampling = Sampling::planned, .batches = 9}),
                  std::invalid_argument);
}

TEST_CASE("a full batch is accounted as the plain Gaussian mechanism") {
  Parameter w(zeros({3}));
  Clipper clipper({{{&w}, 1}});
  GaussianMechanism mechanism(4);
  Ledger ledger;
  FullBatchSampler sampler(5);
  for (int i = 0; i < 10; ++i) {
    Tape tape({.private_data = true});
    const Var x = tape.input(full({5, 3}, 1));
    clipper.add(tape, sum_per_sample(mul(x, tape.use(w))));
    mechanism.release(clipper.finish(sampler.draw()), ledger);
  }
  PldAccountant closed_form;
  closed_form.compose({.noise_multiplier = 4 / std::sqrt(10.0)}, 1);
  CHECK(epsilon(ledger, 1e-5) == Approx(closed_form.epsilon(1e-5)).epsilon(1e-9));
}

TEST_CASE("a sum that was moved from is refused, and nothing is recorded") {
  Parameter w(zeros({2}));
  Clipper clipper({{{&w}, 1}});
  GaussianMechanism mechanism(4);
  Ledger ledger;
  FullBatchSampler sampler(3);
  clipper.add_zeros(3);
  ClippedSum sum = clipper.finish(sampler.draw());
  const ClippedSum other = std::move(sum);
  CHECK(other.groups() == 1);
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK_THROWS_AS(sum.groups(), std::invalid_argument);
  CHECK_THROWS_AS(mechanism.release(std::move(sum), ledger), std::invalid_argument);
  StatisticSum values({{0, 1}});
  for (int unit = 0; unit < 3; ++unit) values.add(std::vector<double>{1});
  BoundedStatistics statistics = values.finish(sampler.draw());
  const BoundedStatistics others = std::move(statistics);
  CHECK(others.draw().number() == 1);
  CHECK_THROWS_AS(statistics.draw(), std::invalid_argument);
  CHECK_THROWS_AS(mechanism.release(std::move(statistics), ledger), std::invalid_argument);
  // NOLINTEND(bugprone-use-after-move)
  CHECK(ledger.releases() == 0);
}

TEST_CASE("the released gradient is the noisy sum over the expected batch size") {
  Parameter w(zeros({2}));
  Clipper clipper({{{&w}, 100}});
  GaussianMechanism mechanism(0);
  Ledger ledger;
  FullBatchSampler sampler(4);
  Tape tape({.private_data = true});
  const std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8};
  clipper.add(tape, sum_per_sample(mul(tape.input(Tensor::from(rows, {4, 2})), tape.use(w))));
  const NoisyGradient released = mechanism.release(clipper.finish(sampler.draw()), ledger);
  CHECK(released.gradients()[0].second.to_vector<float>() == std::vector<float>{4, 5});
  CHECK(std::isinf(epsilon(ledger, 1e-5)));
}

// One release of a sum of four rows, in f64, multiplied by the expected batch size.
std::vector<double> release_rows(const std::vector<double>& rows, double bound,
                                 GaussianMechanism& mechanism) {
  Parameter w(zeros({2}, Dtype::f64));
  Clipper clipper({{{&w}, bound}});
  FullBatchSampler sampler(4);
  Tape tape({.private_data = true});
  const Var x = tape.input(Tensor::from(rows, {4, 2}));
  clipper.add(tape, sum_per_sample(mul(x, tape.use(w))));
  Ledger ledger;
  const NoisyGradient released = mechanism.release(clipper.finish(sampler.draw()), ledger);
  std::vector<double> values = released.gradients()[0].second.to_vector<double>();
  for (double& v : values) v *= 4;
  return values;
}

TEST_CASE(
    "the release lies on the grid, whatever the data, and the noise does not depend on them") {
  for (const double bound : {1e-30, 3.0, 1e30}) {
    const NoiseGrid grid = noise_grid(0.8, bound, 2);
    std::vector<double> rows{0.1, 0.2, -0.3, 0.01, 0.5, 0.5, 1e-9, 0.25};
    for (double& v : rows) v *= bound;
    std::vector<double> noise[2];
    for (int i = 0; i < 2; ++i) {
      GaussianMechanism mechanism(0.8, SecretRandom::insecure_seeded(7));
      noise[i] = release_rows(rows, bound, mechanism);
      for (std::size_t k = 0; k < 2; ++k) {
        const double spacings = noise[i][k] / grid.spacing;
        CHECK(spacings == std::round(spacings));
        CHECK(std::abs(spacings) < 7 * grid.stddev);
        const double sum = rows[k] + rows[k + 2] + rows[k + 4] + rows[k + 6];
        noise[i][k] -= static_cast<double>(grid.rounded(sum)) * grid.spacing;
      }
      for (double& v : rows) v *= -0.7;  // for the second round
    }
    CHECK(noise[0] == noise[1]);
  }
}

TEST_CASE("sums in single precision are released at extreme scales") {
  for (const double bound : {1e-30, 1e30}) {
    Parameter w(zeros({1000}));
    Clipper clipper({{{&w}, bound}});
    FullBatchSampler sampler(2);
    Tape tape({.private_data = true});
    const Var x = tape.input(full({2, 1000}, bound));
    clipper.add(tape, sum_per_sample(mul(x, tape.use(w))));
    GaussianMechanism mechanism(1);
    Ledger ledger;
    const NoisyGradient released = mechanism.release(clipper.finish(sampler.draw()), ledger);
    double squares = 0;
    for (const float v : released.gradients()[0].second.to_vector<float>()) {
      squares += std::pow(2 * static_cast<double>(v) / bound, 2);
    }
    // 1000 from the noise and 4 from the two clipped gradients; six standard errors.
    CHECK(squares == Approx(1004).margin(6 * std::sqrt(2e3)));
  }
}

TEST_CASE("an infinite sum counts as the largest finite one") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor sums = Tensor::from(std::vector<float>{infinity, -infinity, 8}, {3});
  const NoiseGrid grid = noise_grid(1, 1e30, 3);
  const Gradients in_place{{nullptr, sums}};
  NoisyUpdate(in_place, in_place, 1).on_cpu(grid, [](NoisePlace, std::span<std::int64_t> noise) {
    std::fill(noise.begin(), noise.end(), 0);
    return noise;
  });
  const auto values = sums.to_vector<float>();
  CHECK(std::isfinite(values[0]));
  CHECK(values[0] == -values[1]);
  CHECK(values[0] > 1e38F);
  CHECK(values[2] == 0);  // far below the spacing
}

TEST_CASE("scales without a grid are an error, and nothing is released") {
  GaussianMechanism mechanism(1e30);
  CHECK_THROWS_AS(release_rows({0, 0, 0, 0, 0, 0, 0, 0}, 1, mechanism), std::invalid_argument);
  GaussianMechanism plain(1e30, SecretRandom(), GaussianNoise::floating_point);
  CHECK_NOTHROW(release_rows({0, 0, 0, 0, 0, 0, 0, 0}, 1, plain));
}

TEST_CASE("the description says how the noise was drawn, and with what key") {
  CHECK(GaussianMechanism(1.5).description() ==
        "Gaussian, noise multiplier 1.5 (exact sampler on a grid, keyed by the operating system)");
  CHECK(GaussianMechanism(2, SecretRandom(), GaussianNoise::floating_point).description() ==
        "Gaussian, noise multiplier 2 (floating-point sampler keyed by the operating system)");
  CHECK(GaussianMechanism(2, SecretRandom::insecure_seeded(1)).description() ==
        "Gaussian, noise multiplier 2 (exact sampler on a grid, keyed by a SEED: NOT PRIVATE)");
}

TEST_CASE("a draw is released once, and a broken ledger releases nothing") {
  Fixture f;
  GaussianMechanism mechanism(1, SecretRandom::insecure_seeded(6));
  f.noise(mechanism);
  PoissonSampler again(1000, 1e-12, SecretRandom::insecure_seeded(2));  // numbers from 0 once more
  CHECK_THROWS_AS(mechanism.release(f.clipper.finish(again.draw()), f.ledger),
                  std::invalid_argument);
  CHECK(f.ledger.releases() == 1);
  CHECK_THROWS_AS(GaussianMechanism(-1), std::invalid_argument);
  CHECK_THROWS_AS(GaussianMechanism(std::nan("")), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
