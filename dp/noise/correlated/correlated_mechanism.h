// The matrix mechanism in training: noise that is correlated over the steps of a plan, so that it
// cancels in the sum of all gradients that a model is made of (DP-FTRL, DP-BandMF, BLT).
#pragma once

#include <map>

#include "dp/noise/correlated/noise_stream.h"
#include "dp/noise/mechanism.h"

namespace sotto {

// How noise is correlated, and which batches it is made for.
struct NoisePlan {
  StrategyMatrix strategy;
  // Of the whole plan, as one release: the standard deviation of the independent noise over the
  // clipped sum's sensitivity times C's. For planned batches C's is StrategyMatrix::sensitivity()
  // with this separation; for cyclic Poisson batches the norm of its largest column.
  double noise_multiplier = 1;
  Sampling sampling = Sampling::planned;  // or cyclic_poisson
  // planned: a record takes part in steps that are so many or more apart.
  // cyclic_poisson: the number of batches of a cycle, at least the number of C's bands.
  std::int64_t separation = 1;
};

// The grid that the plan's sums of `elements` elements in all and that sensitivity are released on,
// and the deviation of Z. What one record changes, rounding included, is within 1 + rounding_share
// of sensitivity times C's. Throws std::invalid_argument when there is no such grid, and for a plan
// that CorrelatedMechanism would refuse.
NoiseGrid noise_grid(const NoisePlan& plan, double sensitivity, std::int64_t elements);

// Adds (C^-1 Z)_t at step t of its plan, where Z is independent and normal. The steps must be
// released in order, on consecutive draws and with the same sensitivity; anything else throws
// std::invalid_argument before the ledger is written. Noise is made of whole numbers on a grid as
// by GaussianMechanism, and what is released is a function of the Gaussian mechanism's result
// (docs/correlated_noise.md).
class CorrelatedMechanism final : public Mechanism {
 public:
  // Throws std::invalid_argument unless noise_multiplier is positive and finite, the sampling is
  // one of the two, and 1 <= separation, which for cyclic batches is at least strategy.bands().
  explicit CorrelatedMechanism(NoisePlan plan, SecretRandom random = SecretRandom());

  const NoisePlan& plan() const { return plan_; }
  // C's, by which the clipped sum's is multiplied.
  double factor_sensitivity() const { return factor_sensitivity_; }
  std::int64_t steps_made() const { return started_ ? started_->stream.step() : 0; }
  // Throws std::invalid_argument for batches of another kind than the plan's.
  Event event(Event batch) const override;
  std::string description() const override;

  // What a checkpoint needs to go on with the plan. It holds noise that was released: SECRET. Not
  // the generator. Throws std::invalid_argument after a release that broke off.
  std::map<std::string, Tensor> state() const;
  // Continues a plan that was the same. The next release must be on the very next draw, and the
  // ledger must not have seen a later one. Throws std::invalid_argument for a state that is
  // incomplete or of another plan; then nothing has changed.
  void load_state(const std::map<std::string, Tensor>& state);

 protected:
  void prepare(const SampledBatch& draw, const Gradients& sums, double sensitivity,
               const Ledger& ledger) override;
  void add_noise(const Gradients& sums, const Gradients& released, const Scale& scale) override;
  double noise_deviation(const Scale& scale) const override;
  bool independent() const override { return false; }
  bool secure() const override { return random_.secure(); }

 private:
  // From the first release on.
  struct Started {
    std::vector<std::int64_t> sizes;  // of the parameters
    double sensitivity;               // of the clipped sums
    NoiseGrid grid;
    RoundedGaussian sampler;
    CorrelatedNoiseStream stream;
    std::uint64_t next_draw;
    bool whole = true;  // no release broke off
  };
  Started start(std::vector<std::int64_t> sizes, double sensitivity, std::uint64_t draw) const;
  void check_goes_on(const std::vector<std::int64_t>& sizes, double sensitivity, std::uint64_t draw,
                     std::uint64_t next_in_ledger) const;
  // All numbers in which two plans must agree.
  Tensor signature() const;

  NoisePlan plan_;
  double factor_sensitivity_;
  SecretRandom random_;
  std::optional<Started> started_;
};

}  // namespace sotto
