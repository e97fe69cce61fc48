// Batches without units, so that the released sums are noise only.
#pragma once

#include "dp/clipping/clipper.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

namespace sotto {

inline constexpr double bound = 0.5;
inline constexpr std::int64_t elements = 700;

// Epochs of a public order or of cyclic sampling, in which fixed units take part.
class PlannedEpochs final : public Sampler {
 public:
  PlannedEpochs(Sampling sampling, std::int64_t batches, std::int64_t min_separation,
                std::vector<std::int64_t> units = {})
      : Sampler(100, {.sampling = sampling,
                      .sampling_rate = sampling == Sampling::planned ? 1 : 0.5,
                      .batches = batches}),
        separation_(min_separation),
        units_(std::move(units)) {}
  std::int64_t min_separation() const override { return separation_; }
  double expected_batch_size() const override { return 4; }

 protected:
  std::vector<std::int64_t> sample(std::int64_t /*index_in_epoch*/) override { return units_; }
  bool secure() const override { return true; }

 private:
  std::int64_t separation_;
  std::vector<std::int64_t> units_;
};

// A model whose gradient is zero: the released means are the noise over the expected size.
struct Fixture {
  Parameter a{zeros({20, 30})};
  Parameter b{zeros({100}, Dtype::f64)};
  Clipper clipper{{{{&a, &b}, bound}}};
  Ledger ledger;

  NoisyGradient release(Mechanism& mechanism, Sampler& sampler) {
    clipper.discard();
    return mechanism.release(clipper.finish(sampler.draw()), ledger);
  }
  std::vector<double> noise(Mechanism& mechanism, Sampler& sampler) {
    const NoisyGradient released = release(mechanism, sampler);
    std::vector<double> values;
    for (const float v : released.gradients()[0].second.to_vector<float>())
      values.push_back(4 * static_cast<double>(v));
    for (const double v : released.gradients()[1].second.to_vector<double>())
      values.push_back(4 * v);
    return values;
  }
  // Checks that a release is refused, without a release or a change of the ledger.
  void check_refused(Mechanism& mechanism, Sampler& sampler) {
    const std::int64_t releases = ledger.releases();
    const std::uint64_t next = ledger.next_draw();
    const std::size_t reasons = ledger.reasons().size();
    CHECK_THROWS_AS(release(mechanism, sampler), std::invalid_argument);
    CHECK(ledger.releases() == releases);
    CHECK(ledger.next_draw() == next);
    CHECK(ledger.reasons().size() == reasons);
  }
};

inline NoisePlan plan_of(StrategyMatrix strategy, std::int64_t min_separation = 3) {
  return {
      .strategy = std::move(strategy), .noise_multiplier = 1.7, .min_separation = min_separation};
}

inline NoisePlan banded_plan(std::int64_t steps = 6) {
  return plan_of(StrategyMatrix(BandedToeplitz{{1, 0.5}}, steps));
}

// The noise by step, then by element.
inline std::vector<std::vector<double>> noise_of(CorrelatedMechanism& mechanism) {
  Fixture f;
  const std::int64_t steps = mechanism.plan().strategy.steps();
  PlannedEpochs sampler(Sampling::planned, steps, 3);
  std::vector<std::vector<double>> noise;
  for (std::int64_t t = 0; t < steps; ++t) noise.push_back(f.noise(mechanism, sampler));
  return noise;
}

}  // namespace sotto
