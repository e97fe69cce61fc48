// Canaries for audits of a training run: artificial units whose presence shows as plainly as
// clipping allows. A canary's gradient has one nonzero element, larger than the clip bound (the
// Dirac canary of Nasr et al. 2023): it changes one element of the released sum by exactly the
// bound, at any point of training, and no two canaries share an element.
#pragma once

#include <span>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/tape.h"

namespace sotto {
class SecretRandom;
}  // namespace sotto

namespace sotto {

struct CanaryOptions {
  std::int64_t count = 1000;    // number of canaries
  std::int64_t population = 1;  // of the units that are not canaries
  double magnitude = 1;         // of a canary's gradient; well above the clip bound
  std::uint64_t seed = 0;       // public: chooses the elements
};

// Canaries that take part in a training run as units population, population + 1, ..., on different
// elements of the given parameters, which must outlive them.
class DiracCanaries {
 public:
  // Tosses a fair coin for each canary. Throws std::invalid_argument unless count is from 1 to the
  // number of elements of trainable parameters, population >= 1 and the magnitude is positive and
  // finite.
  DiracCanaries(const std::vector<Parameter*>& parameters, const CanaryOptions& options);
  // With the caller's coins, such as SecretRandom::insecure_seeded() in tests.
  DiracCanaries(const std::vector<Parameter*>& parameters, const CanaryOptions& options,
                SecretRandom coins);

  std::int64_t size() const { return std::ssize(elements_); }
  // The number of units to sample from: all canaries are units, but those that are out have no
  // rows.
  std::int64_t units() const { return options_.population + size(); }
  // The coins; secret until the run is over.
  const std::vector<bool>& included() const { return included_; }

  // For EngineOptions::rows_of_unit, where row k is unit k. Throws std::invalid_argument for a unit
  // that does not exist.
  std::vector<std::int64_t> rows_of_unit(std::int64_t unit) const;
  // The rows to give to the model: 0 in place of a canary's.
  std::vector<std::int64_t> data_rows(std::span<const std::int64_t> rows) const;
  // Replaces the losses of canaries' rows in `ordinary` [n], the model's losses for
  // data_rows(rows), by magnitude theta_k, whose gradient is the canary's.
  Var losses(const Var& ordinary, std::span<const std::int64_t> rows) const;

  // The canaries' elements of the parameters' present values, and of gradients (0 for a missing
  // one).
  std::vector<double> values() const;
  // Returns the canaries' elements of a gradient, in the order of the canaries.
  std::vector<double> elements(const Gradients& gradients) const;

 private:
  struct CanaryElement {
    std::size_t parameter;
    std::int64_t element;
  };
  Var own_losses(Tape& tape, std::span<const std::int64_t> rows) const;

  CanaryOptions options_;
  std::vector<Parameter*> parameters_;
  std::vector<CanaryElement> elements_;  // [canary]
  std::vector<bool> included_;
};

// The traces of the canaries in a run's releases, [step][canary]: the element of the noisy sum over
// the clip bound, minus the expected contribution of other units. Without noise it is 1 if the
// canary took part and 0 if it did not.
using CanaryTrace = std::vector<std::vector<double>>;

// The log-likelihood ratio between in and out for the Poisson-sampled Gaussian mechanism, which
// gives the best possible test:
//   sum_t ln(1 - q + q e^{(2 x_t - 1) / (2 sigma^2)}).
// Throws std::invalid_argument unless noise_multiplier > 0, sampling_rate is in (0, 1] and all
// steps have the same number of canaries.
std::vector<double> likelihood_ratios(const CanaryTrace& trace, double noise_multiplier,
                                      double sampling_rate);

// sum_t (x_t - mean_t x)^2: detects, under noise that does not change, canaries whose participation
// changes.
std::vector<double> spreads(const CanaryTrace& trace);

}  // namespace sotto
