// Canaries for audits of a training run: made-up units whose presence shows as plainly as the
// clipping allows. A canary's gradient has one element that is not zero and is longer than the clip
// bound (the Dirac canary of Nasr et al. 2023), so that it moves one element of the released sum by
// just the bound, wherever training is, and two canaries never touch the same element.
#pragma once

#include <span>
#include <vector>

#include "autograd/tape.h"
#include "core/random/secret_random.h"

namespace sotto {

struct CanaryOptions {
  std::int64_t count = 1000;
  std::int64_t population = 1;  // of the units that are not canaries
  double magnitude = 1;         // of their gradients; well above the clip bound
  std::uint64_t seed = 0;       // public: which elements
};

// Canaries that take part as units population, population + 1, ... of a training run, on different
// elements of the given parameters, which must outlive them.
class DiracCanaries {
 public:
  // Tosses a fair coin for each canary. Throws std::invalid_argument unless there are from 1 to as
  // many canaries as elements of trainable parameters, population >= 1 and the magnitude is
  // positive and finite.
  DiracCanaries(const std::vector<Parameter*>& parameters, const CanaryOptions& options,
                SecretRandom coins = SecretRandom());

  std::int64_t size() const { return std::ssize(places_); }
  // What the sampler draws from: all canaries are units, but those that are out have no rows.
  std::int64_t units() const { return options_.population + size(); }
  // The coins. Secret until the run is over.
  const std::vector<bool>& included() const { return included_; }

  // For EngineOptions::rows_of_unit, where row k is unit k. Throws std::invalid_argument for a unit
  // that there is not.
  std::vector<std::int64_t> rows_of_unit(std::int64_t unit) const;
  // The rows to give the model: 0 for those of canaries.
  std::vector<std::int64_t> data_rows(std::span<const std::int64_t> rows) const;
  // `ordinary` [n], the model's losses for data_rows(rows), with the losses of canaries in place of
  // what stands in their rows: magnitude * theta_k, whose gradient is that of the canary.
  Var losses(const Var& ordinary, std::span<const std::int64_t> rows) const;

  // The canaries' elements of their parameters now, and of gradients (a missing one is 0).
  std::vector<double> values() const;
  std::vector<double> elements(const Gradients& gradients) const;

 private:
  struct Place {
    std::size_t parameter;
    std::int64_t element;
  };
  Var own_losses(Tape& tape, std::span<const std::int64_t> rows) const;

  CanaryOptions options_;
  std::vector<Parameter*> parameters_;
  std::vector<Place> places_;  // [canary]
  std::vector<bool> included_;
};

// What the releases of a run showed of each canary, [step][canary]: the element of the noisy sum
// over the clip bound, less what other units are expected to add to it. Without noise it is 1 when
// the canary took part and 0 when it did not.
using CanaryTrace = std::vector<std::vector<double>>;

// The logarithm of the likelihood ratio between in and out, for the Poisson-sampled Gaussian
// mechanism, by which no test does better:
//   sum_t ln(1 - q + q e^{(2 x_t - 1) / (2 sigma^2)}).
// Throws std::invalid_argument unless noise_multiplier > 0, sampling_rate is in (0, 1] and all
// steps have as many canaries.
std::vector<double> likelihood_ratios(const CanaryTrace& trace, double noise_multiplier,
                                      double sampling_rate);

// sum_t (x_t - mean_t x)^2, which sees who comes and goes under noise that stays the same.
std::vector<double> spreads(const CanaryTrace& trace);

}  // namespace sotto
