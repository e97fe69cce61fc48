// The matrix-factorization mechanism: noise that is correlated over the steps of a plan, so that it
// partly cancels in the sum of all gradients (DP-FTRL, DP-BandMF, BLT).
#pragma once

#include <map>
#include <memory>

#include "dp/noise/correlated/strategy_matrix.h"
#include "dp/noise/mechanism.h"

namespace sotto {
class SecretRandom;
struct NoiseGrid;
}  // namespace sotto

namespace sotto {

// The correlation of the noise, and the batches it is made for.
struct NoisePlan {
  StrategyMatrix strategy;  // C
  // Noise multiplier of the whole plan as one release: the standard deviation of the independent
  // noise over the clipped sum's sensitivity times C's. For planned batches C's sensitivity is
  // StrategyMatrix::sensitivity() with this separation; for cyclic Poisson batches it is the norm
  // of C's largest column.
  double noise_multiplier = 1;
  Sampling sampling = Sampling::planned;  // or cyclic_poisson
  // planned: two steps in which a record takes part are at least this many apart. cyclic_poisson:
  // the number of batches of a cycle, at least the number of C's bands.
  std::int64_t min_separation = 1;
};

// The grid on which the plan's sums, of `elements` elements in all and this sensitivity, are
// released, and the standard deviation of Z. The change by one record, rounding included, is within
// a factor 1 + 2^-20 of sensitivity times C's. Throws std::invalid_argument when there is no such
// grid, and for a plan that CorrelatedMechanism would refuse.
NoiseGrid noise_grid(const NoisePlan& plan, double sensitivity, std::int64_t elements);

// Adds (C^-1 Z)_t at step t of its plan, where Z is independent and normal. Use it for DP-FTRL and
// banded matrix factorization. Steps must be released in order, on consecutive draws and with the
// same sensitivity; otherwise it throws std::invalid_argument before the ledger is written. Noise
// is integer on a grid as in GaussianMechanism, and the release is a function of the Gaussian
// mechanism's result (docs/appendix/proofs-correlated-noise.md).
class CorrelatedMechanism final : public Mechanism {
 public:
  // Throws std::invalid_argument unless noise_multiplier is positive and finite, the sampling is
  // planned or cyclic_poisson, and min_separation is at least 1, for cyclic batches at least
  // strategy.bands().
  explicit CorrelatedMechanism(NoisePlan plan);
  // With the caller's generator; a seeded one marks the ledger as not private.
  CorrelatedMechanism(NoisePlan plan, SecretRandom random);
  ~CorrelatedMechanism() override;

  // Entries of state(). The past noise, i64 [slots, elements]:
  static constexpr const char* memory_entry = "memory";
  // The number of elements whose past noise a rank holds:
  static constexpr const char* own_elements_entry = "own_elements";

  const NoisePlan& plan() const;
  // C's sensitivity, by which the clipped sum's is multiplied.
  double factor_sensitivity() const;
  // Releases of the plan made so far.
  std::int64_t steps_made() const;
  // Throws std::invalid_argument for batches of another kind than the plan's.
  Event event(Event batch) const override;
  std::string description() const override;
  // Throws std::invalid_argument unless it is the plan's.
  void set_noise_multiplier(double noise_multiplier) override;

  // The state for a training checkpoint. It contains released noise: keep it SECRET. It does not
  // contain the generator. On several ranks memory_entry is that of the rank's own elements, and
  // load_state() needs their number in own_elements_entry. Throws std::invalid_argument after a
  // release that failed midway.
  std::map<std::string, Tensor> state() const override;
  // Continues the plan from a state. The next release must be on the next draw, and the ledger must
  // not have a later one. Throws std::invalid_argument, before any change, for a state that is
  // incomplete or of another plan.
  void load_state(const std::map<std::string, Tensor>& state) override;

 protected:
  void prepare(const SampledBatch& draw, const NoisyUpdate& update, double sensitivity,
               const Ledger& ledger) override;
  void add_noise(NoisyUpdate& update, const NoiseScale& scale) override;
  double noise_stddev(const NoiseScale& scale) const override;
  bool independent() const override { return false; }
  bool secure() const override;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace sotto
